// What goes between the program's views and a call of cuDNN: statistics (the same natural log-sum-exp, packed another
// way), rows copied together, true lengths.
#pragma once

#include "device/cuda/cuda_stream.h"
#include "tensor/view.h"

namespace megatoken::cuda {

// lse: [heads, Sq] f32, rows strided. packed: [heads][room], room at least Sq.
void unpack_lse(CudaStream& stream, const float* packed, int64 room, const View& lse);
// The rest of a packed row is left untouched.
void pack_lse(CudaStream& stream, const View& lse, float* packed, int64 room);
// packed [Sq][heads], as if the heads of a query were rows of their own.
void pack_lse_by_query(CudaStream& stream, const View& lse, float* packed);
// A bf16 copy of v with as many rows as `rows`, those past v's own 0.
View padded_copy(CudaStream& stream, const View& v, std::byte* room, int64 rows);
// *to = value, an i32 in device memory.
void write_length(CudaStream& stream, void* to, int64 value);

}  // namespace megatoken::cuda
