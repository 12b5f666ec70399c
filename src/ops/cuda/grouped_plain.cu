// Rows of a group start a new tile: as many blocks are launched as there can be tiles at most, and those too many end
// at once.
#include "ops/cuda/grouped_plain.h"
#include "ops/cuda/plain_tile.cuh"

namespace megatoken::cuda {
namespace {

// d[r] = a[r] op(b_e); b_row, b_col: strides of op(b_e), b_group: from one expert's matrix to the next.
__global__ void rows_kernel(Rows<const Bf16> a, const Bf16* b, int64 b_group, int64 b_row, int64 b_col, Rows<Bf16> d,
                            const std::int32_t* offsets, int groups, int64 n, int64 k, int64 across) {
  int64 tile = static_cast<int64>(blockIdx.x) / across;
  int e = 0;
  int64 rows = 0;
  for (; e < groups; ++e) {
    rows = offsets[e + 1] - offsets[e];
    const int64 tiles = (rows + kTile - 1) / kTile;
    if (tile < tiles) break;
    tile -= tiles;
  }
  if (e == groups) return;
  const int64 i = tile * kTile + threadIdx.y;
  const int64 j = static_cast<int64>(blockIdx.x) % across * kTile + threadIdx.x;
  const float sum = tile_sum(a.row(offsets[e]), a.stride, 1, b + e * b_group, b_row, b_col, i, j, rows, n, k);
  if (i < rows && j < n) d.row(offsets[e] + i)[j] = from_float<Bf16>(sum);
}

// d_e += a_e^T b_e, an n x k matrix.
__global__ void weights_kernel(Rows<const Bf16> a, Rows<const Bf16> b, Rows<float> d, const std::int32_t* offsets,
                               int64 n, int64 k, int64 down, int64 across) {
  const int64 tile = static_cast<int64>(blockIdx.x) % (down * across);
  const int64 e = static_cast<int64>(blockIdx.x) / (down * across);
  const int64 first = offsets[e], rows = offsets[e + 1] - first;
  if (rows == 0) return;
  const int64 i = tile / across * kTile + threadIdx.y;
  const int64 j = tile % across * kTile + threadIdx.x;
  const float sum = tile_sum(a.row(first), 1, a.stride, b.row(first), b.stride, 1, i, j, n, k, rows);
  if (i < n && j < k) d.row(e * n + i)[j] += sum;
}

}  // namespace

void grouped_plain(CudaStream& stream, const GroupedGemm& op) {
  const int64 n = op.n(), k = op.k(), groups = op.groups();
  const auto* offsets = op.offsets.as<const std::int32_t>();
  const dim3 block(kTile, kTile);
  if (op.product == GroupedProduct::weight_gradient) {
    const int64 down = ceil_div(n, kTile), across = ceil_div(k, kTile);
    weights_kernel<<<grid_size(groups * down * across), block, 0, stream.native()>>>(
        rows_of<const Bf16>(op.a), rows_of<const Bf16>(op.b), rows_of<float>(op.d), offsets, n, k, down, across);
    return;
  }
  const bool forward = op.product == GroupedProduct::forward;
  const int64 cols = op.d.cols, across = ceil_div(cols, kTile), stride = op.b.row_stride;
  const int64 tiles = ceil_div(op.rows(), kTile) + groups;
  rows_kernel<<<grid_size(tiles * across), block, 0, stream.native()>>>(
      rows_of<const Bf16>(op.a), op.b.as<const Bf16>(), n * stride, forward ? 1 : stride, forward ? stride : 1,
      rows_of<Bf16>(op.d), offsets, static_cast<int>(groups), cols, op.a.cols, across);
}

}  // namespace megatoken::cuda
