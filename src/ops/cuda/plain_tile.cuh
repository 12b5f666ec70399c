// A tile of a product without tensor cores: 16 x 16 outputs a block, one a thread; tiles of a and b pass through shared
// memory.
#pragma once

#include "ops/cuda/launch.cuh"

namespace megatoken::cuda {

constexpr int kTile = 16;

// sum over p of a[i][p] b[p][j] for this thread's i and j of an m x n product; all threads of a block call it.
// op(a)[i][p] is a[i * a_row + p * a_col]; likewise b.
__device__ inline float tile_sum(const Bf16* a, int64 a_row, int64 a_col, const Bf16* b, int64 b_row, int64 b_col,
                                 int64 i, int64 j, int64 m, int64 n, int64 k) {
  __shared__ float a_tile[kTile][kTile + 1];
  __shared__ float b_tile[kTile][kTile + 1];
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  float sum = 0;
  for (int64 first = 0; first < k; first += kTile) {
    a_tile[y][x] = i < m && first + x < k ? to_float(a[i * a_row + (first + x) * a_col]) : 0.0f;
    b_tile[y][x] = j < n && first + y < k ? to_float(b[(first + y) * b_row + j * b_col]) : 0.0f;
    __syncthreads();
    for (int p = 0; p < kTile; ++p) sum += a_tile[y][p] * b_tile[p][x];
    __syncthreads();
  }
  return sum;
}

}  // namespace megatoken::cuda
