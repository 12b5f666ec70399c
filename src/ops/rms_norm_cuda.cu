// With r = 1 / sqrt(mean(x^2) + eps), xn = x r and g = dy weight: y = round(xn) weight; dx = r (g - xn mean(g xn)) +
// residual; dweight += sum over rows of dy round(xn), round() being to the storage type.
//
// blockDim.x threads share a row, blockDim.y rows are worked on at once; a row is read twice, the second time from cache.
#include "ops/cuda/column_sums.h"
#include "ops/cuda/launch.cuh"
#include "ops/op_table_cuda.h"

namespace megatoken {
namespace {

using namespace cuda;

constexpr int64 kMostBlocks = 1024;          // that leave a partial sum of dweight
constexpr int64 kSharedSumBytes = 40 << 10;  // longer rows add up in the stream's scratch

dim3 row_block(int64 cols) {
  const unsigned x = power_of_2_from(ceil_div(cols, kPack), 32, 512);
  return dim3(x, x >= 256 ? 1 : 256 / x);
}

__device__ float inverse_rms(const Bf16* x, int64 n, bool aligned, float eps, float* shared) {
  float sum = 0;
  for (int64 j = threadIdx.x * kPack; j < n; j += blockDim.x * kPack) {
    float v[kPack];
    load8(x + j, n - j, aligned, v);
#pragma unroll
    for (int i = 0; i < kPack; ++i) sum += v[i] * v[i];
  }
  sum = sum_row(sum, shared);
  return 1.0f / sqrtf(sum / static_cast<float>(n) + eps);
}

__global__ void rms_norm_kernel(Rows<const Bf16> x, Rows<const Bf16> weight, Rows<Bf16> y, int64 rows, int64 n, float eps) {
  __shared__ float shared[8 * 32];
  const int64 row = static_cast<int64>(blockIdx.x) * blockDim.y + threadIdx.y;
  const int64 valid = row < rows ? n : 0;
  const Bf16* from = x.row(row < rows ? row : 0);
  const float r = inverse_rms(from, valid, x.aligned, eps, shared);
  Bf16* to = y.row(row);
  for (int64 j = threadIdx.x * kPack; j < valid; j += blockDim.x * kPack) {
    float v[kPack], w[kPack];
    load8(from + j, n - j, x.aligned, v);
    load8(weight.data + j, n - j, weight.aligned, w);
#pragma unroll
    for (int i = 0; i < kPack; ++i) v[i] = w[i] * rounded_to<Bf16>(v[i] * r);
    store8(to + j, n - j, y.aligned, v);
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
  float* partial;    // [gridDim.x][n]
  bool sums_shared;  // dweight is added up in shared memory, [blockDim.y][n]
};

// dx may be residual or dy: a thread writes only what it alone has read, after the row's sums are there.
template <typename Dy, typename Dx>
__global__ void rms_norm_backward_kernel(BackwardArguments<Dy, Dx> a) {
  extern __shared__ float sums[];
  __shared__ float shared[2][8 * 32];
  const int64 n = a.n;
  const int64 step = blockDim.x * kPack;
  float* mine = a.sums_shared ? sums + threadIdx.y * n : a.partial + (blockIdx.x * blockDim.y + threadIdx.y) * n;
  for (int64 j = threadIdx.x * kPack; j < n; j += step)
    for (int64 i = j; i < min(j + kPack, n); ++i) mine[i] = 0;

  for (int64 first = static_cast<int64>(blockIdx.x) * blockDim.y; first < a.rows;
       first += static_cast<int64>(gridDim.x) * blockDim.y) {
    const int64 row = first + threadIdx.y;
    const int64 valid = row < a.rows ? n : 0;
    const int64 safe = row < a.rows ? row : 0;
    const Bf16* x = a.x.row(safe);
    const Dy* dy = a.dy.row(safe);
    const float r = inverse_rms(x, valid, a.x.aligned, a.eps, shared[0]);
    float dot = 0;
    for (int64 j = threadIdx.x * kPack; j < valid; j += step) {
      float v[kPack], w[kPack], d[kPack];
      load8(x + j, n - j, a.x.aligned, v);
      load8(a.weight.data + j, n - j, a.weight.aligned, w);
      load8(dy + j, n - j, a.dy.aligned, d);
#pragma unroll
      for (int i = 0; i < kPack; ++i) dot += d[i] * w[i] * (v[i] * r);
    }
    const float mean = sum_row(dot, shared[1]) / static_cast<float>(n);
    for (int64 j = threadIdx.x * kPack; j < valid; j += step) {
      float v[kPack], w[kPack], d[kPack], result[kPack] = {};
      load8(x + j, n - j, a.x.aligned, v);
      load8(a.weight.data + j, n - j, a.weight.aligned, w);
      load8(dy + j, n - j, a.dy.aligned, d);
      if (a.residual.data != nullptr) load8(a.residual.row(row) + j, n - j, a.residual.aligned, result);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        const float normed = v[i] * r;
        result[i] += r * (d[i] * w[i] - normed * mean);
        if (j + i < n) mine[j + i] += d[i] * rounded_to<Bf16>(normed);
      }
      store8(a.dx.row(row) + j, n - j, a.dx.aligned, result);
    }
  }
  if (!a.sums_shared) return;  // each row of threads has left a partial sum of its own
  __syncthreads();
  for (int64 j = threadIdx.y * blockDim.x + threadIdx.x; j < n; j += blockDim.x * blockDim.y) {
    float total = 0;
    for (unsigned y = 0; y < blockDim.y; ++y) total += sums[y * n + j];
    a.partial[blockIdx.x * n + j] = total;
  }
}

template <typename Dy, typename Dx>
void backward(CudaStream& cuda, const RmsNormBackward& op) {
  const int64 n = op.x.cols;
  const dim3 block = row_block(n);
  const int64 shared_bytes = block.y * n * static_cast<int64>(sizeof(float));
  const bool shared = shared_bytes <= kSharedSumBytes;
  const int64 partials_per_block = shared ? 1 : block.y;
  const int64 blocks = num_partials(cuda, op.x.rows, n * partials_per_block, 8 * block.y, kMostBlocks);
  const BackwardArguments<Dy, Dx> arguments{rows_of<const Bf16>(op.x),
                                            rows_of<const Bf16>(op.weight),
                                            rows_of<const Dy>(op.dy),
                                            rows_of<const Dx>(op.residual),
                                            rows_of<Dx>(op.dx),
                                            op.x.rows,
                                            n,
                                            op.eps,
                                            static_cast<float*>(cuda.scratch()),
                                            shared};
  rms_norm_backward_kernel<Dy, Dx>
      <<<grid_size(blocks), block, shared ? static_cast<std::size_t>(shared_bytes) : 0, cuda.native()>>>(arguments);
  add_partials(cuda, blocks * partials_per_block, n, op.dweight.as<float>());
}

}  // namespace

void rms_norm_cuda(Stream& stream, const RmsNorm& op) {
  validate(op);
  require_bf16("rms_norm", "x", op.x);
  if (op.x.empty()) return;
  CudaStream& cuda = cuda_stream(stream);
  const dim3 block = row_block(op.x.cols);
  rms_norm_kernel<<<grid_size(ceil_div(op.x.rows, block.y)), block, 0, cuda.native()>>>(
      rows_of<const Bf16>(op.x), rows_of<const Bf16>(op.weight), rows_of<Bf16>(op.y), op.x.rows, op.x.cols, op.eps);
  cuda.launched("rms_norm");
}

void rms_norm_backward_cuda(Stream& stream, const RmsNormBackward& op) {
  validate(op);
  require_bf16("rms_norm_backward", "x", op.x);
  if (op.x.empty()) return;
  CudaStream& cuda = cuda_stream(stream);
  with_float_type(op.dy.dtype, [&](auto dy) {
    with_float_type(op.dx.dtype, [&](auto dx) { backward<decltype(dy), decltype(dx)>(cuda, op); });
  });
  cuda.launched("rms_norm_backward");
}

}  // namespace megatoken
