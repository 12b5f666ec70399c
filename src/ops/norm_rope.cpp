#include "ops/norm_rope.h"

#include "ops/shape_check.h"

namespace megatoken {
namespace {

// What the forward and its backward share: everything but y.
void validate_inputs(const char* name, const NormRope& op) {
  check_count(name, "head_dim", op.head_dim, 1);
  check(op.head_dim % 2 == 0, "{}: head_dim {} is odd", name, op.head_dim);
  check(op.x.cols % op.head_dim == 0, "{}: {} columns are not whole heads of {}", name, op.x.cols, op.head_dim);
  check_view(name, "x", op.x, op.x.rows, op.x.cols, kFloatTypes);
  check_optional_view(name, "weight", op.weight, 1, op.head_dim, {op.x.dtype});
  check_view(name, "positions", op.positions, op.x.rows, 1, {DType::i32});
  check_optional_view(name, "frequency_index", op.frequency_index, op.x.rows, 1, {DType::i32});
  check_count(name, "the number of frequency tables", op.inverse_frequency.rows, 1);
  check_view(name, "inverse_frequency", op.inverse_frequency, op.inverse_frequency.rows, op.head_dim / 2, {DType::f32});
}

}  // namespace

void validate(const NormRope& op) {
  validate_inputs("norm_rope", op);
  check_view("norm_rope", "y", op.y, op.x.rows, op.x.cols, {op.x.dtype});
}

void validate(const NormRopeBackward& op) {
  validate_inputs("norm_rope_backward", op.forward);
  const View& x = op.forward.x;
  check_view("norm_rope_backward", "dy", op.dy, x.rows, x.cols, kFloatTypes);
  check_view("norm_rope_backward", "dx", op.dx, x.rows, x.cols, {x.dtype});
  check(op.dweight.absent() == op.forward.weight.absent(), "norm_rope_backward: one of weight and dweight is absent");
  check_optional_view("norm_rope_backward", "dweight", op.dweight, 1, op.forward.head_dim, {DType::f32});
}

Cost cost_of(const NormRope& op) {
  return {CostKind::memory, 7.0 * static_cast<double>(op.x.elements()),
          static_cast<double>(op.x.bytes() + op.y.bytes())};
}

Cost cost_of(const NormRopeBackward& op) {
  return {CostKind::memory, 14.0 * static_cast<double>(op.forward.x.elements()),
          static_cast<double>(op.forward.x.bytes() + op.dy.bytes() + op.dx.bytes())};
}

}  // namespace megatoken
