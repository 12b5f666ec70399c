// A block per row, which reads its logits twice. First: the largest logit m with its first place, s = sum exp(z - m) and
// t = sum exp(z - m) (z - m), each thread online over its own logits (Milakov and Gimelshein 2018), the threads' results
// put together in float64. Then loss = log s + m - z[label], entropy = log s - t / s, and the gradient.
#include <cmath>

#include "ops/cuda/launch.cuh"
#include "ops/op_table_cuda.h"

namespace megatoken {
namespace {

using namespace cuda;

constexpr int kThreads = 512;

struct State {
  float largest;
  int place;  // of the first largest
  double exponentials;
  double weighted;
};

__device__ State merge(const State& a, const State& b) {
  State r{};
  const bool b_first = b.largest > a.largest || (b.largest == a.largest && b.place < a.place);
  r.largest = b_first ? b.largest : a.largest;
  r.place = b_first ? b.place : a.place;
  for (const State* s : {&a, &b}) {
    if (s->exponentials == 0) continue;  // saw nothing: its largest may be -inf
    const double below = static_cast<double>(s->largest) - static_cast<double>(r.largest);
    const double factor = below == 0 ? 1.0 : exp(below);
    r.exponentials += s->exponentials * factor;
    if (factor != 0) r.weighted += (s->weighted + s->exponentials * below) * factor;
  }
  return r;
}

__device__ State shuffled(const State& s, int offset) {
  State r;
  r.largest = __shfl_xor_sync(0xFFFFFFFFu, s.largest, offset);
  r.place = __shfl_xor_sync(0xFFFFFFFFu, s.place, offset);
  r.exponentials = __shfl_xor_sync(0xFFFFFFFFu, s.exponentials, offset);
  r.weighted = __shfl_xor_sync(0xFFFFFFFFu, s.weighted, offset);
  return r;
}

__device__ State thread_state(const float* z, int64 n, bool aligned) {
  State state{-INFINITY, 0x7FFFFFFF, 0, 0};
  float m = -INFINITY, s = 0, t = 0;
  for (int64 first = static_cast<int64>(threadIdx.x) * kPack; first < n; first += kThreads * kPack) {
    float v[kPack];
    load8(z + first, n - first, aligned, v);
    float largest = m;
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      if (first + i >= n) v[i] = -INFINITY;
      if (v[i] > largest) {
        largest = v[i];
        state.place = static_cast<int>(first + i);
      }
    }
    if (largest > m) {
      const float below = m - largest;
      const float factor = expf(below);
      t = factor == 0 ? 0.0f : (t + s * below) * factor;
      s *= factor;
      m = largest;
    }
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      if (v[i] == -INFINITY) continue;  // no share; m may be -inf too
      const float below = v[i] - m;
      const float e = expf(below);
      s += e;
      if (e != 0) t += e * below;  // exp(-inf) (-inf) counts as its limit
    }
  }
  state.largest = m;
  state.exponentials = static_cast<double>(s);
  state.weighted = static_cast<double>(t);
  return state;
}

template <typename T>
__global__ void cross_entropy_kernel(Rows<const float> logits, int64 n, const std::int32_t* labels, int64 label_stride,
                                     Rows<float> loss, Rows<float> correct, Rows<float> entropy, Rows<T> dlogits) {
  __shared__ State shared[kThreads / 32];
  const int64 row = blockIdx.x;
  const float* z = logits.row(row);
  const int64 label = labels[row * label_stride];
  if (label < 0 || label >= n) __trap();
  const float label_logit = z[label];

  State state = thread_state(z, n, logits.aligned);
  for (int offset = 16; offset > 0; offset /= 2) state = merge(state, shuffled(state, offset));
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = state;
  __syncthreads();
  state = shared[0];
  for (int i = 1; i < kThreads / 32; ++i) state = merge(state, shared[i]);

  const double log_sum = log(state.exponentials);
  if (threadIdx.x == 0) {
    *loss.row(row) = static_cast<float>(log_sum + (static_cast<double>(state.largest) - static_cast<double>(label_logit)));
    *correct.row(row) = state.place == label ? 1.0f : 0.0f;
    *entropy.row(row) = static_cast<float>(log_sum - state.weighted / state.exponentials);
  }
  if (dlogits.data == nullptr) return;
  const auto scale = static_cast<float>(1.0 / state.exponentials);
  T* d = dlogits.row(row);
  for (int64 first = static_cast<int64>(threadIdx.x) * kPack; first < n; first += kThreads * kPack) {
    float v[kPack];
    load8(z + first, n - first, logits.aligned, v);
#pragma unroll
    for (int i = 0; i < kPack; ++i) v[i] = expf(v[i] - state.largest) * scale - (first + i == label ? 1.0f : 0.0f);
    store8(d + first, n - first, dlogits.aligned, v);
  }
}

}  // namespace

void cross_entropy_cuda(Stream& stream, const CrossEntropy& op) {
  validate(op);
  if (op.logits.rows == 0) return;
  check(op.logits.cols < 0x7FFFFFFF, "cross_entropy: a vocabulary of {}", op.logits.cols);
  CudaStream& cuda = cuda_stream(stream);
  with_float_type(op.dlogits.absent() ? DType::bf16 : op.dlogits.dtype, [&](auto type) {
    using T = decltype(type);
    cross_entropy_kernel<T><<<grid_size(op.logits.rows), kThreads, 0, cuda.native()>>>(
        rows_of<const float>(op.logits), op.logits.cols, op.labels.as<const std::int32_t>(), op.labels.row_stride,
        rows_of<float>(op.loss), rows_of<float>(op.correct), rows_of<float>(op.entropy), rows_of<T>(op.dlogits));
  });
  cuda.launched("cross_entropy");
}

}  // namespace megatoken
