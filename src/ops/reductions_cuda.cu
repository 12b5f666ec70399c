// bias_gradient and sum_squares: partial sums into the stream's scratch, then one sum in a fixed order.
#include "ops/cuda/column_sums.h"
#include "ops/cuda/launch.cuh"
#include "ops/op_table_cuda.h"

namespace megatoken {
namespace {

using namespace cuda;

// Block (32 packs of columns) x (8 rows at a time); gridDim.y partial sums, each over every gridDim.y-th group of rows.
template <typename T>
__global__ void column_sums_kernel(Rows<const T> x, int64 rows, int64 cols, float* partial) {
  __shared__ float shared[8][32][kPack + 1];
  const int64 col = (static_cast<int64>(blockIdx.x) * 32 + threadIdx.x) * kPack;
  float sum[kPack] = {};
  if (col < cols) {
    for (int64 i = static_cast<int64>(blockIdx.y) * 8 + threadIdx.y; i < rows; i += static_cast<int64>(gridDim.y) * 8) {
      float v[kPack];
      load8(x.row(i) + col, cols - col, x.aligned, v);
#pragma unroll
      for (int j = 0; j < kPack; ++j) sum[j] += v[j];
    }
  }
#pragma unroll
  for (int j = 0; j < kPack; ++j) shared[threadIdx.y][threadIdx.x][j] = sum[j];
  __syncthreads();
  if (threadIdx.y != 0) return;
  for (int y = 1; y < 8; ++y)
#pragma unroll
    for (int j = 0; j < kPack; ++j) sum[j] += shared[y][threadIdx.x][j];
  for (int j = 0; j < kPack; ++j)
    if (col + j < cols) partial[blockIdx.y * cols + col + j] = sum[j];
}

constexpr int kSquareThreads = 256;
constexpr int64 kSquarePiece = 65536;  // elements of a partial sum
constexpr int64 kMostSquares = 4096;   // partial sums at most

// The sum over a block, in thread 0.
__device__ double sum_block(double x) {
  __shared__ double shared[kSquareThreads / 32];
  x = sum_lanes(x);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  double total = 0;
  if (threadIdx.x == 0)
    for (const double part : shared) total += part;
  return total;
}

__global__ void squares_kernel(const float* x, int64 n, int64 piece, bool aligned, double* partial) {
  const int64 first = static_cast<int64>(blockIdx.x) * piece;
  const int64 last = min(n, first + piece);
  double sum = 0;
  for (int64 i = first + static_cast<int64>(threadIdx.x) * kPack; i < last; i += kSquareThreads * kPack) {
    float v[kPack];
    load8(x + i, last - i, aligned, v);
#pragma unroll
    for (int j = 0; j < kPack; ++j) sum += static_cast<double>(v[j]) * static_cast<double>(v[j]);
  }
  sum = sum_block(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void add_squares_kernel(const double* partial, int64 count, double* result) {
  double sum = 0;
  for (int64 i = threadIdx.x; i < count; i += kSquareThreads) sum += partial[i];
  sum = sum_block(sum);
  if (threadIdx.x == 0) *result += sum;
}

}  // namespace

void bias_gradient_cuda(Stream& stream, const BiasGradient& op) {
  validate(op);
  if (op.dy.empty()) return;
  CudaStream& cuda = cuda_stream(stream);
  const int64 cols = op.dy.cols;
  const int64 across = ceil_div(cols, 32 * kPack);
  const int64 count = num_partials(cuda, op.dy.rows, cols, 64, std::max<int64>(1, 1024 / across));
  with_float_type(op.dy.dtype, [&](auto type) {
    using T = decltype(type);
    column_sums_kernel<T><<<dim3(grid_size(across), static_cast<unsigned>(count)), dim3(32, 8), 0, cuda.native()>>>(
        rows_of<const T>(op.dy), op.dy.rows, cols, static_cast<float*>(cuda.scratch()));
  });
  add_partials(cuda, count, cols, op.dbias.as<float>());
  cuda.launched("bias_gradient");
}

void sum_squares_cuda(Stream& stream, const SumSquares& op) {
  validate(op);
  const int64 n = op.x.cols;
  if (n == 0) return;
  CudaStream& cuda = cuda_stream(stream);
  const int64 piece = std::max(kSquarePiece, ceil_div(ceil_div(n, kMostSquares), kPack) * kPack);
  const int64 count = ceil_div(n, piece);
  auto* partial = static_cast<double*>(cuda.scratch());
  squares_kernel<<<grid_size(count), kSquareThreads, 0, cuda.native()>>>(op.x.as<const float>(), n, piece, aligned16(op.x),
                                                                         partial);
  add_squares_kernel<<<1, kSquareThreads, 0, cuda.native()>>>(partial, count, op.result.as<double>());
  cuda.launched("sum_squares");
}

}  // namespace megatoken
