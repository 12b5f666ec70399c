// Element conversion between the file formats' floating types and the two that weights are kept in.
#pragma once

#include "base/dtype.h"

namespace megatoken {

// Converts count elements. Sources f32, bf16, f16; destinations f32 and bf16 (nearest, ties to even; f16 goes through
// float32, which holds it exactly, so it is rounded once); equal types are copied. Neither side needs alignment; the
// two must not overlap. InternalError for any other pair.
void convert_elements(DType from, const void* source, DType to, void* destination, int64 count);

// Whether convert_elements knows the pair.
bool convertible(DType from, DType to);

}  // namespace megatoken
