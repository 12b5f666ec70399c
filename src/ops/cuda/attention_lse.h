// cuDNN's statistics and the program's: the same natural log-sum-exp, packed another way.
#pragma once

#include "device/cuda/cuda_stream.h"
#include "tensor/view.h"

namespace megatoken::cuda {

// lse: [heads, Sq] f32, rows strided. packed: heads * Sq contiguous.
void unpack_lse(CudaStream& stream, const float* packed, const View& lse);
// packed [heads][room], the rest of a row untouched. room: at least Sq.
void pack_lse(CudaStream& stream, const View& lse, float* packed, int64 room);
// packed [Sq][heads], as if the heads of a query were rows of their own.
void pack_lse_by_query(CudaStream& stream, const View& lse, float* packed);
// *to = value, an i32 in device memory.
void write_length(CudaStream& stream, void* to, int64 value);

}  // namespace megatoken::cuda
