// Rows picked out by index and put back, and the embedding, which is the same. Bytes are moved as they are, so any type
// goes. An index out of range stops the kernel (trap), before anything is read or written there.
#include "ops/cuda/launch.cuh"
#include "ops/op_table_cuda.h"

namespace megatoken {
namespace {

using namespace cuda;

// Rows as `words` pieces of type Word; strides in words.
template <typename Word, bool kScatter>
__global__ void move_rows_kernel(const Word* x, int64 x_stride, const std::int32_t* index, int64 index_stride, int64 bound,
                                 Word* y, int64 y_stride, int64 rows, int64 words) {
  const int64 across = (words + blockDim.x - 1) / blockDim.x;
  const int64 row = static_cast<int64>(blockIdx.x) / across * blockDim.y + threadIdx.y;
  const int64 word = static_cast<int64>(blockIdx.x) % across * blockDim.x + threadIdx.x;
  if (row >= rows || word >= words) return;
  const int64 picked = index[row * index_stride];
  if (picked < 0 || picked >= bound) __trap();
  if constexpr (kScatter)
    y[picked * y_stride + word] = x[row * x_stride + word];
  else
    y[row * y_stride + word] = x[picked * x_stride + word];
}

template <typename Word, bool kScatter>
void launch(CudaStream& cuda, const View& x, const View& index, const View& y, int64 rows, int64 bound) {
  const int64 size = size_of(x.dtype);
  const auto per_word = static_cast<int64>(sizeof(Word));
  const int64 words = x.cols * size / per_word;
  const unsigned width = power_of_2_from(words, 1, 256);
  const dim3 block(width, 256 / width);
  const int64 blocks = ceil_div(rows, block.y) * ceil_div(words, width);
  move_rows_kernel<Word, kScatter><<<grid_size(blocks), block, 0, cuda.native()>>>(
      x.as<const Word>(), x.row_stride * size / per_word, index.as<const std::int32_t>(), index.row_stride, bound,
      y.as<Word>(), y.row_stride * size / per_word, rows, words);
}

template <bool kScatter>
void move_rows(Stream& stream, const char* name, const View& x, const View& index, const View& y) {
  if (index.rows == 0 || x.cols == 0) return;
  CudaStream& cuda = cuda_stream(stream);
  const int64 bound = kScatter ? y.rows : x.rows;
  const int64 size = size_of(x.dtype);
  if (aligned16(x) && aligned16(y) && x.cols * size % 16 == 0)
    launch<uint4, kScatter>(cuda, x, index, y, index.rows, bound);
  else if (size % 2 == 0)
    launch<std::uint16_t, kScatter>(cuda, x, index, y, index.rows, bound);
  else
    launch<std::uint8_t, kScatter>(cuda, x, index, y, index.rows, bound);
  cuda.launched(name);
}

}  // namespace

void gather_rows_cuda(Stream& stream, const GatherRows& op) {
  validate(op);
  move_rows<false>(stream, "gather_rows", op.x, op.index, op.y);
}

void scatter_rows_cuda(Stream& stream, const ScatterRows& op) {
  validate(op);
  move_rows<true>(stream, "scatter_rows", op.x, op.index, op.y);
}

void embedding_cuda(Stream& stream, const Embedding& op) {
  validate(op);
  move_rows<false>(stream, "embedding", op.table, op.ids, op.y);
}

}  // namespace megatoken
