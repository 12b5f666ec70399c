#include "ops/cuda/attention_copies.h"

#include "ops/cuda/launch.cuh"
#include "ops/op_table_cuda.h"

namespace megatoken::cuda {
namespace {

constexpr int kThreads = 256;

// packed[head * head_stride + query * query_stride] = lse[head][query], or the other way.
template <bool kPackIt>
__global__ void move_lse_kernel(Rows<float> lse, float* packed, int64 queries, int64 across, int64 head_stride,
                                int64 query_stride) {
  const int64 head = static_cast<int64>(blockIdx.x) / across;
  const int64 query = static_cast<int64>(blockIdx.x) % across * kThreads + threadIdx.x;
  if (query >= queries) return;
  float* other = packed + head * head_stride + query * query_stride;
  if constexpr (kPackIt)
    *other = lse.row(head)[query];
  else
    lse.row(head)[query] = *other;
}

__global__ void length_kernel(std::int32_t* to, std::int32_t value) { *to = value; }

}  // namespace

void unpack_lse(CudaStream& stream, const float* packed, int64 room, const View& lse) {
  const int64 across = ceil_div(lse.cols, kThreads);
  move_lse_kernel<false><<<grid_size(across * lse.rows), kThreads, 0, stream.native()>>>(
      rows_of<float>(lse), const_cast<float*>(packed), lse.cols, across, room, 1);
}

void pack_lse(CudaStream& stream, const View& lse, float* packed, int64 room) {
  const int64 across = ceil_div(lse.cols, kThreads);
  move_lse_kernel<true><<<grid_size(across * lse.rows), kThreads, 0, stream.native()>>>(rows_of<float>(lse), packed,
                                                                                        lse.cols, across, room, 1);
}

void pack_lse_by_query(CudaStream& stream, const View& lse, float* packed) {
  const int64 across = ceil_div(lse.cols, kThreads);
  move_lse_kernel<true><<<grid_size(across * lse.rows), kThreads, 0, stream.native()>>>(rows_of<float>(lse), packed,
                                                                                        lse.cols, across, 1, lse.rows);
}

View padded_copy(CudaStream& stream, const View& v, std::byte* room, int64 rows) {
  const View copy(room, DType::bf16, rows, v.cols);
  convert_cuda(stream, {v, copy.row_range(0, v.rows)});
  fill_zero_cuda(stream, {copy.row_range(v.rows, rows - v.rows)});
  return copy;
}

void write_length(CudaStream& stream, void* to, int64 value) {
  length_kernel<<<1, 1, 0, stream.native()>>>(static_cast<std::int32_t*>(to), static_cast<std::int32_t>(value));
}

}  // namespace megatoken::cuda
