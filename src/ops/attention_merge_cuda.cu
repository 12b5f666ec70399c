// o = (o_a exp(lse_a - m) + o_b exp(lse_b - m)) / (exp(lse_a - m) + exp(lse_b - m)), m the larger lse; a part that saw
// nothing (-inf) has no share. The lse's are merged after all of o, by a kernel of their own.
#include <cmath>

#include "ops/cuda/launch.cuh"
#include "ops/op_table_cuda.h"

namespace megatoken {
namespace {

using namespace cuda;

struct Shares {
  float kept, added, lse;
};

__device__ Shares merge_shares(float kept, float added) {
  const float largest = kept < added ? added : kept;
  if (largest == -INFINITY) return {1.0f, 0.0f, largest};
  const float a = expf(kept - largest);
  const float b = expf(added - largest);
  return {a / (a + b), b / (a + b), largest + logf(a + b)};
}

// A row of tiles is one head of one query. aligned: heads start on 16-byte boundaries.
template <typename T>
__global__ void merge_kernel(Rows<const T> part, Rows<const float> lse_part, Rows<float> o, Rows<const float> lse,
                             int64 queries, int64 heads, int64 head_dim, int64 across, bool first, bool aligned) {
  const int64 row = tile_row(across);
  const int64 col = tile_col(across);
  if (row >= queries * heads || col >= head_dim) return;
  const int64 query = row / heads;
  const int64 head = row % heads;
  const int64 at = head * head_dim + col;
  float added[kPack];
  load8(part.row(query) + at, head_dim - col, aligned && part.aligned, added);
  float* to = o.row(query) + at;
  if (!first) {
    const Shares shares = merge_shares(lse.row(head)[query], lse_part.row(head)[query]);
    float kept[kPack];
    load8(to, head_dim - col, aligned && o.aligned, kept);
#pragma unroll
    for (int i = 0; i < kPack; ++i) added[i] = kept[i] * shares.kept + added[i] * shares.added;
  }
  store8(to, head_dim - col, aligned && o.aligned, added);
}

__global__ void merge_lse_kernel(Rows<const float> lse_part, Rows<float> lse, int64 heads, int64 queries, int64 across,
                                 bool first) {
  const int64 head = static_cast<int64>(blockIdx.x) / across;
  const int64 query = static_cast<int64>(blockIdx.x) % across * blockDim.x + threadIdx.x;
  if (query >= queries) return;
  float* to = lse.row(head) + query;
  const float added = lse_part.row(head)[query];
  *to = first ? added : merge_shares(*to, added).lse;
}

}  // namespace

void attention_merge_cuda(Stream& stream, const AttentionMerge& op) {
  validate(op);
  if (op.o.rows == 0) return;
  CudaStream& cuda = cuda_stream(stream);
  const Tiles tiles(op.o.rows * op.heads, op.head_dim);
  with_float_type(op.o_part.dtype, [&](auto type) {
    using T = decltype(type);
    merge_kernel<T><<<tiles.grid, tiles.block, 0, cuda.native()>>>(
        rows_of<const T>(op.o_part), rows_of<const float>(op.lse_part), rows_of<float>(op.o), rows_of<const float>(op.lse),
        op.o.rows, op.heads, op.head_dim, tiles.across, op.first, op.head_dim % kPack == 0);
  });
  const int64 across = ceil_div(op.o.rows, 256);
  merge_lse_kernel<<<grid_size(across * op.heads), 256, 0, cuda.native()>>>(
      rows_of<const float>(op.lse_part), rows_of<float>(op.lse), op.heads, op.o.rows, across, op.first);
  cuda.launched("attention_merge");
}

}  // namespace megatoken
