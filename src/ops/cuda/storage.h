// What the CUDA ops demand of their arguments' storage; host code only.
#pragma once

#include "base/error.h"
#include "tensor/view.h"

namespace megatoken::cuda {

inline int64 ceil_div(int64 a, int64 b) { return (a + b - 1) / b; }

// The CUDA ops compute on bf16 storage; float32 is for gradients, logits and sums.
inline void require_bf16(const char* op, const char* argument, const View& v) {
  check(v.dtype == DType::bf16, "{}: {} is {}: on CUDA it is stored in bfloat16", op, argument, name_of(v.dtype));
}

}  // namespace megatoken::cuda
