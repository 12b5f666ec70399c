// The order of operations is that of torch.optim.AdamW (single tensor, neither fused nor capturable): scalars in
// float64 on the host, each rounded to float32 where torch hands it to a float32 tensor.
#include <cmath>

#include "ops/cpu/elements.h"
#include "ops/cpu/parallel.h"
#include "ops/op_table_cpu.h"

namespace megatoken {
namespace {

struct Scalars {
  explicit Scalars(const Adamw& op)
      : gradient_scale(op.gradient_scale),
        decay(static_cast<float>(1.0 - op.lr * op.weight_decay)),
        average_weight(static_cast<float>(1.0 - op.beta1)),
        square_decay(static_cast<float>(op.beta2)),
        square_weight(static_cast<float>(1.0 - op.beta2)),
        correction(static_cast<float>(std::sqrt(1.0 - std::pow(op.beta2, static_cast<double>(op.step))))),
        eps(static_cast<float>(op.eps)),
        step_size(static_cast<float>(-(op.lr / (1.0 - std::pow(op.beta1, static_cast<double>(op.step)))))) {}
  float gradient_scale, decay, average_weight, square_decay, square_weight, correction, eps, step_size;
};

// One element; returns the new master.
inline float update(const Scalars& s, float master, float gradient, float& average, float& square) {
  const float g = gradient * s.gradient_scale;
  average = multiply_add(s.average_weight, g - average, average);
  square = square * s.square_decay + s.square_weight * g * g;
  const float denominator = std::sqrt(square) / s.correction + s.eps;
  return master * s.decay + s.step_size * average / denominator;
}

}  // namespace

void adamw_cpu(Stream& stream, const Adamw& op) {
  validate(op);
  const Scalars scalars(op);
  const float* grad = op.grad.as<const float>();
  float* average = op.exp_avg.as<float>();
  float* square = op.exp_avg_sq.as<float>();
  parallel_pieces(stream, 1, op.weight.cols, [&](int64, int64 first, int64 last) {
    if (op.weight.dtype == DType::f32) {
      float* weight = op.weight.as<float>();
#pragma omp simd
      for (int64 i = first; i < last; ++i) weight[i] = update(scalars, weight[i], grad[i], average[i], square[i]);
    } else {
      auto* weight = op.weight.as<std::uint16_t>();
      auto* remainder = op.remainder.as<std::uint16_t>();
#pragma omp simd
      for (int64 i = first; i < last; ++i) {
        // join_master and split_master, spelt on integers for the vectoriser.
        const std::uint32_t low = remainder[i];
        const std::uint32_t joined = (static_cast<std::uint32_t>(weight[i]) << 16) + low - ((low & 0x8000u) << 1);
        const float master = update(scalars, std::bit_cast<float>(joined), grad[i], average[i], square[i]);
        const auto bits = std::bit_cast<std::uint32_t>(master);
        weight[i] = static_cast<std::uint16_t>((bits + 0x8000u) >> 16);
        remainder[i] = static_cast<std::uint16_t>(bits);
      }
    }
  });
}

}  // namespace megatoken
