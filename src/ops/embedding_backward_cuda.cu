// The gradient of the embedding, summed in token order without atomics or sorting: tokens are taken kChunk at a time,
// launch after launch. The block of a token leaves at once if an earlier token of the chunk has the same id; otherwise it
// gathers the later ones that have it, in order, adds their rows up and then adds the sum to the table's row, which is
// its own. A frequent id costs one block a chunk.
#include "ops/cuda/launch.cuh"
#include "ops/op_table_cuda.h"

namespace megatoken {
namespace {

using namespace cuda;

constexpr int kThreads = 256;
constexpr int kChunk = 4096;

template <typename T>
__global__ void embedding_backward_kernel(const std::int32_t* ids, int64 id_stride, Rows<const T> dy, Rows<float> dtable,
                                          int64 bound, int count, int64 cols) {
  __shared__ std::uint16_t matches[kChunk];
  __shared__ int warp_matches[kThreads / 32];
  const int own = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const std::int32_t id = ids[own * id_stride];
  if (id < 0 || id >= bound) __trap();
  int earlier = 0;
  for (int i = thread; i < own; i += kThreads) earlier |= ids[i * id_stride] == id;
  if (__syncthreads_or(earlier)) return;

  int found = 0;  // the same in all threads
  for (int first = own; first < count; first += kThreads) {
    const int i = first + thread;
    const bool match = i < count && ids[i * id_stride] == id;
    const unsigned mask = __ballot_sync(0xFFFFFFFFu, match);
    if (thread % 32 == 0) warp_matches[thread / 32] = __popc(mask);
    __syncthreads();
    int before = found;
    for (int warp = 0; warp < kThreads / 32; ++warp) {
      if (warp < thread / 32) before += warp_matches[warp];
      found += warp_matches[warp];
    }
    if (match) matches[before + __popc(mask & ((1u << (thread % 32)) - 1))] = static_cast<std::uint16_t>(i);
    __syncthreads();
  }

  for (int64 col = static_cast<int64>(thread) * kPack; col < cols; col += kThreads * kPack) {
    float* to = dtable.row(id) + col;
    float sum[kPack];
    load8(to, cols - col, dtable.aligned, sum);
#pragma unroll 4
    for (int m = 0; m < found; ++m) {
      float v[kPack];
      load8(dy.row(matches[m]) + col, cols - col, dy.aligned, v);
#pragma unroll
      for (int j = 0; j < kPack; ++j) sum[j] += v[j];
    }
    store8(to, cols - col, dtable.aligned, sum);
  }
}

}  // namespace

void embedding_backward_cuda(Stream& stream, const EmbeddingBackward& op) {
  validate(op);
  if (op.dy.empty()) return;
  CudaStream& cuda = cuda_stream(stream);
  with_float_type(op.dy.dtype, [&](auto type) {
    using T = decltype(type);
    for (int64 first = 0; first < op.dy.rows; first += kChunk) {
      const int64 count = std::min<int64>(kChunk, op.dy.rows - first);
      embedding_backward_kernel<T><<<static_cast<unsigned>(count), kThreads, 0, cuda.native()>>>(
          op.ids.row<const std::int32_t>(first), op.ids.row_stride, rows_of<const T>(op.dy.row_range(first, count)),
          rows_of<float>(op.dtable), op.dtable.rows, static_cast<int>(count), op.dy.cols);
    }
  });
  cuda.launched("embedding_backward");
}

}  // namespace megatoken
