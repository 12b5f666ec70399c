// A warp a token, in float32: m = max z, p = exp(z - m) / sum. The next choice is the most probable expert after the
// last one in the order (p descending, number ascending), so nothing is marked as taken. Backward as in router_cpu.cpp.
#include "ops/cuda/launch.cuh"
#include "ops/op_table_cuda.h"

namespace megatoken {
namespace {

using namespace cuda;

constexpr int kWarps = 8;  // tokens a block
constexpr unsigned kAllLanes = 0xFFFFFFFFu;

__device__ int64 token() { return static_cast<int64>(blockIdx.x) * kWarps + threadIdx.x / 32; }
__device__ int lane() { return static_cast<int>(threadIdx.x % 32); }

struct RowSoftmax {
  float largest, sum;
  __device__ float operator()(float z) const { return expf(z - largest) / sum; }
};

__device__ RowSoftmax row_softmax(const float* z, int experts) {
  float largest = -INFINITY;
  for (int e = lane(); e < experts; e += 32) largest = fmaxf(largest, z[e]);
  for (int offset = 16; offset > 0; offset /= 2) largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, offset));
  float sum = 0;
  for (int e = lane(); e < experts; e += 32) sum += expf(z[e] - largest);
  return {largest, sum_lanes(sum)};
}

// What experts are ordered by: p, and NaN behind everything.
__device__ float key_of(float p) { return isnan(p) ? -1.0f : p; }

struct Choice {
  float key;
  int expert;
};
// Whether a comes before b.
__device__ bool before(const Choice& a, const Choice& b) {
  return a.key > b.key || (a.key == b.key && a.expert < b.expert);
}

__global__ void router_kernel(Rows<float> logits, Rows<std::int32_t> chosen, Rows<float> weights, int64 rows,
                              int experts, int k, bool normalize) {
  const int64 t = token();
  if (t >= rows) return;
  float* const p = logits.row(t);
  const RowSoftmax softmax = row_softmax(p, experts);
  for (int e = lane(); e < experts; e += 32) p[e] = softmax(p[e]);
  __syncwarp();
  Choice last{INFINITY, -1};
  float total = 0;
  for (int s = 0; s < k; ++s) {
    Choice best{-INFINITY, experts};
    for (int e = lane(); e < experts; e += 32) {
      const Choice candidate{key_of(p[e]), e};
      if (before(last, candidate) && before(candidate, best)) best = candidate;
    }
    for (int offset = 16; offset > 0; offset /= 2) {
      const Choice other{__shfl_xor_sync(kAllLanes, best.key, offset), __shfl_xor_sync(kAllLanes, best.expert, offset)};
      if (before(other, best)) best = other;
    }
    last = best;
    const float weight = p[best.expert];
    total += weight;
    if (lane() == 0) {
      chosen.row(t)[s] = best.expert;
      weights.row(t)[s] = weight;
    }
  }
  __syncwarp();
  if (normalize && lane() == 0)
    for (int s = 0; s < k; ++s) weights.row(t)[s] /= total;
}

// dlogits may be logits: a lane writes only what it alone has read, after all have read what they share.
template <typename T>
__global__ void router_backward_kernel(Rows<const float> logits, Rows<const std::int32_t> chosen,
                                       Rows<const float> weights, Rows<const float> dweights, const float* balance,
                                       const std::uint8_t* counted, int64 counted_stride, T* dlogits,
                                       int64 dlogits_stride, int64 rows, int experts, int k, bool normalize) {
  const int64 t = token();
  if (t >= rows) return;
  const float* const z = logits.row(t);
  const RowSoftmax softmax = row_softmax(z, experts);
  const bool balanced = balance != nullptr && counted[t * counted_stride] != 0;
  float total = 0;
  for (int s = 0; s < k; ++s) {
    const int e = chosen.row(t)[s];
    if (e < 0 || e >= experts) __trap();
    total += softmax(z[e]);
  }
  const float* const w = weights.row(t);
  const float* const dw = dweights.row(t);
  const auto gradient = [&](int e) {
    float g = balanced ? balance[e] : 0.0f;
    for (int s = 0; s < k; ++s) {
      if (chosen.row(t)[s] != e) continue;
      float d = dw[s];
      if (normalize) {
        float sum = 0;
        for (int j = 0; j < k; ++j) sum += w[j] * (dw[s] - dw[j]);
        d = sum / total;
      }
      g += d;
    }
    return g;
  };
  float mean = 0;
  for (int e = lane(); e < experts; e += 32) mean += gradient(e) * softmax(z[e]);
  mean = sum_lanes(mean);
  T* const to = dlogits + t * dlogits_stride;
  for (int e = lane(); e < experts; e += 32) to[e] = from_float<T>(softmax(z[e]) * (gradient(e) - mean));
}

constexpr int64 kStatisticsRows = 128;  // rows of a partial sum at least
constexpr int kStatisticsThreads = 256;

// partial: [blocks][2E], C then S of the block's rows.
__global__ void statistics_kernel(Rows<const float> p, Rows<const std::int32_t> chosen, const std::uint8_t* counted,
                                  int64 counted_stride, int64 rows, int64 piece, int experts, int k, double* partial) {
  double* const counts = partial + static_cast<int64>(blockIdx.x) * 2 * experts;
  double* const sums = counts + experts;
  const int64 first = static_cast<int64>(blockIdx.x) * piece, last = min(rows, first + piece);
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kStatisticsThreads) {
    double count = 0, sum = 0;
    for (int64 t = first; t < last; ++t) {
      if (counted[t * counted_stride] == 0) continue;
      sum += static_cast<double>(p.row(t)[e]);
      for (int s = 0; s < k; ++s) count += chosen.row(t)[s] == e ? 1 : 0;
    }
    counts[e] = count;
    sums[e] = sum;
  }
}

__global__ void add_statistics_kernel(const double* partial, int64 blocks, int64 columns, double* sums) {
  const int64 j = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (j >= columns) return;
  double sum = sums[j];
  for (int64 b = 0; b < blocks; ++b) sum += partial[b * columns + j];
  sums[j] = sum;
}

__global__ void balance_loss_kernel(const double* sums, int64 stride, int64 parts, int experts, double rows,
                                    double scale, float* loss, float* gradient) {
  __shared__ double shared[kStatisticsThreads];
  double mine = 0;
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kStatisticsThreads) {
    double count = 0, sum = 0;
    for (int64 r = 0; r < parts; ++r) {
      count += sums[r * stride + e];
      sum += sums[r * stride + experts + e];
    }
    const double share = rows > 0 ? count / rows : 0;
    if (rows > 0) mine += share * (sum / rows);
    gradient[e] = rows > 0 ? static_cast<float>(scale * experts * share / rows) : 0.0f;
  }
  shared[threadIdx.x] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return;
  double total = 0;
  for (const double part : shared) total += part;
  *loss = static_cast<float>(total * experts);
}

unsigned token_grid(int64 rows) { return grid_size(ceil_div(rows, kWarps)); }

template <typename T>
Rows<T> plain_rows(const View& v) {
  return {v.as<T>(), v.row_stride, false};
}

}  // namespace

void router_cuda(Stream& stream, const Router& op) {
  validate(op);
  if (op.logits.rows == 0) return;
  CudaStream& cuda = cuda_stream(stream);
  router_kernel<<<token_grid(op.logits.rows), 32 * kWarps, 0, cuda.native()>>>(
      plain_rows<float>(op.logits), plain_rows<std::int32_t>(op.experts), plain_rows<float>(op.weights), op.logits.rows,
      static_cast<int>(op.logits.cols), static_cast<int>(op.experts.cols), op.normalize);
  cuda.launched("router");
}

void router_backward_cuda(Stream& stream, const RouterBackward& op) {
  validate(op);
  if (op.logits.rows == 0) return;
  CudaStream& cuda = cuda_stream(stream);
  const bool balanced = !op.balance.absent();
  with_float_type(op.dlogits.dtype, [&](auto type) {
    using T = decltype(type);
    router_backward_kernel<T><<<token_grid(op.logits.rows), 32 * kWarps, 0, cuda.native()>>>(
        plain_rows<const float>(op.logits), plain_rows<const std::int32_t>(op.experts),
        plain_rows<const float>(op.weights), plain_rows<const float>(op.dweights),
        balanced ? op.balance.as<const float>() : nullptr, balanced ? op.counted.as<const std::uint8_t>() : nullptr,
        op.counted.row_stride, op.dlogits.as<T>(), op.dlogits.row_stride, op.logits.rows,
        static_cast<int>(op.logits.cols), static_cast<int>(op.experts.cols), op.normalize);
  });
  cuda.launched("router_backward");
}

void router_statistics_cuda(Stream& stream, const RouterStatistics& op) {
  validate(op);
  const int64 rows = op.probabilities.rows, columns = op.sums.cols;
  if (rows == 0) return;
  CudaStream& cuda = cuda_stream(stream);
  const int64 room = cuda.scratch_bytes() / (columns * static_cast<int64>(sizeof(double)));
  check(room >= 1, "router_statistics: {} experts", columns / 2);
  const int64 piece = std::max(kStatisticsRows, ceil_div(rows, room));
  const int64 blocks = ceil_div(rows, piece);
  auto* const partial = static_cast<double*>(cuda.scratch());
  statistics_kernel<<<grid_size(blocks), kStatisticsThreads, 0, cuda.native()>>>(
      plain_rows<const float>(op.probabilities), plain_rows<const std::int32_t>(op.experts),
      op.counted.as<const std::uint8_t>(), op.counted.row_stride, rows, piece, static_cast<int>(columns / 2),
      static_cast<int>(op.experts.cols), partial);
  add_statistics_kernel<<<grid_size(ceil_div(columns, 128)), 128, 0, cuda.native()>>>(partial, blocks, columns,
                                                                                      op.sums.as<double>());
  cuda.launched("router_statistics");
}

void balance_loss_cuda(Stream& stream, const BalanceLoss& op) {
  validate(op);
  CudaStream& cuda = cuda_stream(stream);
  balance_loss_kernel<<<1, kStatisticsThreads, 0, cuda.native()>>>(
      op.sums.as<const double>(), op.sums.row_stride, op.sums.rows, static_cast<int>(op.gradient.cols), op.rows,
      op.gradient_scale, op.loss.as<float>(), op.gradient.as<float>());
  cuda.launched("balance_loss");
}

}  // namespace megatoken
