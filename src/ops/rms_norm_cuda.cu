// With r = 1 / sqrt(mean(x^2) + eps), xn = x r and g = dy weight: y = round(xn) weight; dx = r (g - xn mean(g xn)) +
// residual; dweight += sum over rows of dy round(xn), round() being to the storage type.
//
// blockDim.x threads hold a row in registers, kHeld packs each; blockDim.y rows are worked on at once.
#include "ops/cuda/column_sums.h"
#include "ops/cuda/launch.cuh"
#include "ops/op_table_cuda.h"

namespace megatoken {
namespace {

using namespace cuda;

constexpr int kMostThreads = 512;
constexpr int64 kMostCols = 8 * kMostThreads * kPack;
constexpr int64 kMostBlocks = 1056;  // that leave a partial sum of dweight: eight for each of 132 multiprocessors

// kHeld: 4 up to 16,384 columns, else 8.
dim3 row_block(int64 cols, int held) {
  const unsigned x = power_of_2_from(ceil_div(cols, held * kPack), 32, kMostThreads);
  return dim3(x, x >= 128 ? 1 : 128 / x);
}

template <typename F>
void with_held(const char* op, int64 cols, const F& f) {
  check(cols <= kMostCols, "{}: rows of {}, at most {} on CUDA", op, cols, kMostCols);
  if (cols <= kMostCols / 2)
    f(std::integral_constant<int, 4>());
  else
    f(std::integral_constant<int, 8>());
}

// The first column of this thread's p-th pack.
__device__ int64 column(int p) { return (static_cast<int64>(p) * blockDim.x + threadIdx.x) * kPack; }

// Columns of the pack that exist in a row of n.
__device__ int64 left(int p, int64 n) { return n - column(p); }

template <int kHeld, typename T>
__device__ void load_row(const T* row, int64 n, bool aligned, float (&v)[kHeld][kPack]) {
#pragma unroll
  for (int p = 0; p < kHeld; ++p) load8(row + column(p), left(p, n), aligned, v[p]);
}

template <int kHeld>
__device__ float inverse_rms(const float (&v)[kHeld][kPack], int64 n, float eps, float* shared) {
  float sum = 0;
#pragma unroll
  for (int p = 0; p < kHeld; ++p)
#pragma unroll
    for (int i = 0; i < kPack; ++i) sum += v[p][i] * v[p][i];
  return 1.0f / sqrtf(sum_row(sum, shared) / static_cast<float>(n) + eps);
}

template <int kHeld>
__global__ void __launch_bounds__(kMostThreads)
    rms_norm_kernel(Rows<const Bf16> x, Rows<const Bf16> weight, Rows<Bf16> y, int64 rows, int64 n, float eps) {
  __shared__ float shared[4 * 32];
  const int64 row = static_cast<int64>(blockIdx.x) * blockDim.y + threadIdx.y;
  const int64 valid = row < rows ? n : 0;
  float v[kHeld][kPack];
  load_row(x.row(row), valid, x.aligned, v);
  const float r = inverse_rms(v, n, eps, shared);
#pragma unroll
  for (int p = 0; p < kHeld; ++p) {
    if (left(p, valid) <= 0) break;
    float w[kPack];
    load8(weight.data + column(p), left(p, n), weight.aligned, w);
#pragma unroll
    for (int i = 0; i < kPack; ++i) w[i] *= rounded_to<Bf16>(v[p][i] * r);
    store8(y.row(row) + column(p), left(p, n), y.aligned, w);
  }
}

template <typename Dy, typename Dx>
struct BackwardArguments {
  Rows<const Bf16> x, weight;
  Rows<const Dy> dy;
  Rows<const Dx> residual;  // data null: none
  Rows<Dx> dx;
  int64 rows, n;
  float eps;
  float* partial;  // [gridDim.x * blockDim.y][n]
};

// dx may be residual or dy: a row is read before it is written, by the same threads.
template <int kHeld, typename Dy, typename Dx>
__global__ void __launch_bounds__(kMostThreads) rms_norm_backward_kernel(BackwardArguments<Dy, Dx> a) {
  __shared__ float shared[2][4 * 32];
  const int64 n = a.n;
  float sum[kHeld][kPack] = {};
  for (int64 first = static_cast<int64>(blockIdx.x) * blockDim.y; first < a.rows;
       first += static_cast<int64>(gridDim.x) * blockDim.y) {
    const int64 row = first + threadIdx.y;
    const int64 valid = row < a.rows ? n : 0;
    float v[kHeld][kPack], d[kHeld][kPack];
    load_row(a.x.row(row), valid, a.x.aligned, v);
    load_row(a.dy.row(row), valid, a.dy.aligned, d);
    const float r = inverse_rms(v, n, a.eps, shared[0]);
    float dot = 0;
#pragma unroll
    for (int p = 0; p < kHeld; ++p) {
      float w[kPack];
      load8(a.weight.data + column(p), left(p, n), a.weight.aligned, w);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        v[p][i] *= r;
        sum[p][i] += d[p][i] * rounded_to<Bf16>(v[p][i]);
        d[p][i] *= w[i];
        dot += d[p][i] * v[p][i];
      }
    }
    const float mean = sum_row(dot, shared[1]) / static_cast<float>(n);
#pragma unroll
    for (int p = 0; p < kHeld; ++p) {
      if (left(p, valid) <= 0) break;
      float result[kPack] = {};
      if (a.residual.data != nullptr) load8(a.residual.row(row) + column(p), left(p, n), a.residual.aligned, result);
#pragma unroll
      for (int i = 0; i < kPack; ++i) result[i] += r * (d[p][i] - v[p][i] * mean);
      store8(a.dx.row(row) + column(p), left(p, n), a.dx.aligned, result);
    }
  }
  float* mine = a.partial + (static_cast<int64>(blockIdx.x) * blockDim.y + threadIdx.y) * n;
#pragma unroll
  for (int p = 0; p < kHeld; ++p)
#pragma unroll
    for (int i = 0; i < kPack; ++i)
      if (i < left(p, n)) mine[column(p) + i] = sum[p][i];
}

template <int kHeld, typename Dy, typename Dx>
void backward(CudaStream& cuda, const RmsNormBackward& op) {
  const int64 n = op.x.cols;
  const dim3 block = row_block(n, kHeld);
  const int64 blocks = num_partials(cuda, op.x.rows, n * block.y, 4 * block.y, kMostBlocks);
  const BackwardArguments<Dy, Dx> arguments{rows_of<const Bf16>(op.x),
                                            rows_of<const Bf16>(op.weight),
                                            rows_of<const Dy>(op.dy),
                                            rows_of<const Dx>(op.residual),
                                            rows_of<Dx>(op.dx),
                                            op.x.rows,
                                            n,
                                            op.eps,
                                            static_cast<float*>(cuda.scratch())};
  rms_norm_backward_kernel<kHeld, Dy, Dx><<<grid_size(blocks), block, 0, cuda.native()>>>(arguments);
  add_partials(cuda, blocks * block.y, n, op.dweight.as<float>());
}

}  // namespace

void rms_norm_cuda(Stream& stream, const RmsNorm& op) {
  validate(op);
  require_bf16("rms_norm", "x", op.x);
  if (op.x.empty()) return;
  CudaStream& cuda = cuda_stream(stream);
  with_held("rms_norm", op.x.cols, [&](auto held) {
    const dim3 block = row_block(op.x.cols, held);
    rms_norm_kernel<held><<<grid_size(ceil_div(op.x.rows, block.y)), block, 0, cuda.native()>>>(
        rows_of<const Bf16>(op.x), rows_of<const Bf16>(op.weight), rows_of<Bf16>(op.y), op.x.rows, op.x.cols, op.eps);
  });
  cuda.launched("rms_norm");
}

void rms_norm_backward_cuda(Stream& stream, const RmsNormBackward& op) {
  validate(op);
  require_bf16("rms_norm_backward", "x", op.x);
  if (op.x.empty()) return;
  CudaStream& cuda = cuda_stream(stream);
  with_held("rms_norm_backward", op.x.cols, [&](auto held) {
    with_float_type(op.dy.dtype, [&](auto dy) {
      with_float_type(op.dx.dtype, [&](auto dx) { backward<decltype(held)::value, decltype(dy), decltype(dx)>(cuda, op); });
    });
  });
  cuda.launched("rms_norm_backward");
}

}  // namespace megatoken
