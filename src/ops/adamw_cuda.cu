// The order of operations is that of torch.optim.AdamW (single tensor, neither fused nor capturable): scalars in float64
// on the host, each rounded to float32; every product and sum on the device rounded by itself (no fused multiply-add).
#include <cmath>

#include "ops/cuda/launch.cuh"
#include "ops/op_table_cuda.h"

namespace megatoken {
namespace {

using namespace cuda;

struct Scalars {
  float gradient_scale, decay, average_weight, square_decay, square_weight, correction, eps, step_size;
};

Scalars scalars_of(const Adamw& op) {
  const auto step = static_cast<double>(op.step);
  return {op.gradient_scale,
          static_cast<float>(1.0 - op.lr * op.weight_decay),
          static_cast<float>(1.0 - op.beta1),
          static_cast<float>(op.beta2),
          static_cast<float>(1.0 - op.beta2),
          static_cast<float>(std::sqrt(1.0 - std::pow(op.beta2, step))),
          static_cast<float>(op.eps),
          static_cast<float>(-(op.lr / (1.0 - std::pow(op.beta1, step))))};
}

// One element; returns the new master.
__device__ float update(const Scalars& s, float master, float gradient, float& average, float& square) {
  const float g = __fmul_rn(gradient, s.gradient_scale);
  average = __fadd_rn(average, __fmul_rn(s.average_weight, __fsub_rn(g, average)));
  square = __fadd_rn(__fmul_rn(square, s.square_decay), __fmul_rn(__fmul_rn(s.square_weight, g), g));
  const float denominator = __fadd_rn(__fdiv_rn(__fsqrt_rn(square), s.correction), s.eps);
  return __fadd_rn(__fmul_rn(master, s.decay), __fdiv_rn(__fmul_rn(s.step_size, average), denominator));
}

__device__ void load8(const std::uint16_t* p, int64 n, bool aligned, unsigned (&x)[kPack]) {
  if (aligned && n >= kPack) {
    const uint4 v = *reinterpret_cast<const uint4*>(p);
    const unsigned words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[2 * i] = words[i] & 0xFFFFu;
      x[2 * i + 1] = words[i] >> 16;
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kPack; ++i) x[i] = i < n ? p[i] : 0u;
}

__device__ void store8(std::uint16_t* p, int64 n, bool aligned, const unsigned (&x)[kPack]) {
  if (aligned && n >= kPack) {
    *reinterpret_cast<uint4*>(p) =
        make_uint4(x[0] | x[1] << 16, x[2] | x[3] << 16, x[4] | x[5] << 16, x[6] | x[7] << 16);
    return;
  }
#pragma unroll
  for (int i = 0; i < kPack; ++i)
    if (i < n) p[i] = static_cast<std::uint16_t>(x[i]);
}

struct Arguments {
  Scalars scalars;
  int64 n;
  void* weight;  // bf16, or float32 without a remainder
  std::uint16_t* remainder;
  const float* grad;
  float *average, *square;
  bool aligned;  // all of them, to 16 bytes
};

template <bool kSplit>
__global__ void adamw_kernel(Arguments a) {
  const int64 first = (static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x) * kPack;
  const int64 left = a.n - first;
  if (left <= 0) return;
  float grad[kPack], average[kPack], square[kPack], master[kPack];
  unsigned high[kPack], low[kPack];
  cuda::load8(a.grad + first, left, a.aligned, grad);
  cuda::load8(a.average + first, left, a.aligned, average);
  cuda::load8(a.square + first, left, a.aligned, square);
  if constexpr (kSplit) {
    load8(static_cast<const std::uint16_t*>(a.weight) + first, left, a.aligned, high);
    load8(a.remainder + first, left, a.aligned, low);
  } else {
    cuda::load8(static_cast<const float*>(a.weight) + first, left, a.aligned, master);
  }
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    // join_master and split_master (adamw.h) on integers.
    if constexpr (kSplit) master[i] = __uint_as_float((high[i] << 16) + low[i] - ((low[i] & 0x8000u) << 1));
    master[i] = update(a.scalars, master[i], grad[i], average[i], square[i]);
    if constexpr (kSplit) {
      const unsigned bits = __float_as_uint(master[i]);
      high[i] = (bits + 0x8000u) >> 16;
      low[i] = bits & 0xFFFFu;
    }
  }
  cuda::store8(a.average + first, left, a.aligned, average);
  cuda::store8(a.square + first, left, a.aligned, square);
  if constexpr (kSplit) {
    store8(static_cast<std::uint16_t*>(a.weight) + first, left, a.aligned, high);
    store8(a.remainder + first, left, a.aligned, low);
  } else {
    cuda::store8(static_cast<float*>(a.weight) + first, left, a.aligned, master);
  }
}

}  // namespace

void adamw_cuda(Stream& stream, const Adamw& op) {
  validate(op);
  if (op.weight.empty()) return;
  CudaStream& cuda = cuda_stream(stream);
  const bool split = op.weight.dtype == DType::bf16;
  const bool aligned = aligned16(op.weight) && aligned16(op.grad) && aligned16(op.exp_avg) && aligned16(op.exp_avg_sq) &&
                       (!split || aligned16(op.remainder));
  const Arguments arguments{scalars_of(op),
                            op.weight.cols,
                            op.weight.data,
                            op.remainder.as<std::uint16_t>(),
                            op.grad.as<const float>(),
                            op.exp_avg.as<float>(),
                            op.exp_avg_sq.as<float>(),
                            aligned};
  const unsigned grid = grid_size(ceil_div(op.weight.cols, 256 * kPack));
  if (split)
    adamw_kernel<true><<<grid, 256, 0, cuda.native()>>>(arguments);
  else
    adamw_kernel<false><<<grid, 256, 0, cuda.native()>>>(arguments);
  cuda.launched("adamw");
}

}  // namespace megatoken
