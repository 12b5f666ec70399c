#include "ops/cuda/column_sums.h"

#include <algorithm>

#include "ops/cuda/launch.cuh"

namespace megatoken::cuda {
namespace {

// A block of 32 columns x 32: each of the 32 adds every 32nd partial, then the 32 are added up.
__global__ void add_partials_kernel(const float* partial, int64 count, int64 cols, float* sum) {
  __shared__ float shared[32][33];
  const int64 col = static_cast<int64>(blockIdx.x) * 32 + threadIdx.x;
  float total = 0;
  if (col < cols)
#pragma unroll 4
    for (int64 i = threadIdx.y; i < count; i += 32) total += partial[i * cols + col];
  shared[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y != 0 || col >= cols) return;
  for (int i = 1; i < 32; ++i) total += shared[i][threadIdx.x];
  sum[col] += total;
}

}  // namespace

int64 num_partials(const CudaStream& stream, int64 rows, int64 cols, int64 least_rows, int64 most) {
  const int64 room = stream.scratch_bytes() / (cols * static_cast<int64>(sizeof(float)));
  check(room >= 1, "{} columns don't fit into {} bytes of scratch", cols, stream.scratch_bytes());
  return std::clamp<int64>(ceil_div(rows, least_rows), 1, std::min(room, most));
}

void add_partials(CudaStream& stream, int64 count, int64 cols, float* sum) {
  add_partials_kernel<<<grid_size(ceil_div(cols, 32)), dim3(32, 32), 0, stream.native()>>>(
      static_cast<const float*>(stream.scratch()), count, cols, sum);
}

}  // namespace megatoken::cuda
