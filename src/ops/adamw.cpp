#include "ops/adamw.h"

#include <bit>

#include "ops/shape_check.h"

namespace megatoken {

void validate(const Adamw& op) {
  const int64 n = op.weight.cols;
  check_view("adamw", "weight", op.weight, 1, n, kFloatTypes);
  check(op.weight.empty() || (op.weight.dtype == DType::bf16) == !op.remainder.absent(),
        "adamw: a remainder goes with a bf16 weight and only with one");
  check_optional_view("adamw", "remainder", op.remainder, 1, n, {DType::u16});
  check_view("adamw", "grad", op.grad, 1, n, {DType::f32});
  check_view("adamw", "exp_avg", op.exp_avg, 1, n, {DType::f32});
  check_view("adamw", "exp_avg_sq", op.exp_avg_sq, 1, n, {DType::f32});
  check_count("adamw", "step", op.step, 1);
}

Cost cost_of(const Adamw& op) {
  // Everything but the gradient is read and written.
  const int64 kept = op.weight.bytes() + op.remainder.bytes() + op.exp_avg.bytes() + op.exp_avg_sq.bytes();
  return {CostKind::memory, 15.0 * static_cast<double>(op.weight.elements()),
          static_cast<double>(2 * kept + op.grad.bytes())};
}

SplitMaster split_master(float master) {
  const auto bits = std::bit_cast<std::uint32_t>(master);
  return {bf16::from_bits(static_cast<std::uint16_t>((bits + 0x8000u) >> 16)), static_cast<std::uint16_t>(bits)};
}

float join_master(SplitMaster split) {
  // The remainder is signed: from 0x8000 on it is what the weight was rounded up by.
  const std::uint32_t carry = split.remainder >= 0x8000u ? 0x10000u : 0u;
  return std::bit_cast<float>((static_cast<std::uint32_t>(split.weight.bits) << 16) + split.remainder - carry);
}

}  // namespace megatoken
