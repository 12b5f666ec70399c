#include "ops/cuda/gemm_plan.h"
#include "ops/cuda/plain_tile.cuh"

namespace megatoken::cuda {
namespace {

// op(a)[i][p] is a.data[i * a_row + p * a_col]; likewise b[p][j].
template <typename Out>
__global__ void gemm_plain_kernel(int64 m, int64 n, int64 k, const Bf16* a, int64 a_row, int64 a_col, const Bf16* b,
                                  int64 b_row, int64 b_col, const Out* c, int64 c_stride, Out* d, int64 d_stride,
                                  int64 across) {
  const int64 i = static_cast<int64>(blockIdx.x) / across * kTile + threadIdx.y;
  const int64 j = static_cast<int64>(blockIdx.x) % across * kTile + threadIdx.x;
  float sum = tile_sum(a, a_row, a_col, b, b_row, b_col, i, j, m, n, k);
  if (i >= m || j >= n) return;
  if (c != nullptr) sum += to_float(c[i * c_stride + j]);
  d[i * d_stride + j] = from_float<Out>(sum);
}

}  // namespace

void gemm_plain(CudaStream& stream, const Gemm& g) {
  const int64 across = ceil_div(g.n(), kTile);
  const unsigned grid = grid_size(across * ceil_div(g.m(), kTile));
  with_float_type(g.d.dtype, [&](auto type) {
    using Out = decltype(type);
    gemm_plain_kernel<Out><<<grid, dim3(kTile, kTile), 0, stream.native()>>>(
        g.m(), g.n(), g.k(), g.a.as<const Bf16>(), g.transpose_a ? 1 : g.a.row_stride,
        g.transpose_a ? g.a.row_stride : 1, g.b.as<const Bf16>(), g.transpose_b ? 1 : g.b.row_stride,
        g.transpose_b ? g.b.row_stride : 1, g.c.absent() ? nullptr : g.c.as<const Out>(), g.c.row_stride, g.d.as<Out>(),
        g.d.row_stride, across);
  });
}

}  // namespace megatoken::cuda
