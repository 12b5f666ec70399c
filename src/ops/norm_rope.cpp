#include "ops/norm_rope.h"

#include "ops/shape_check.h"

namespace megatoken {
namespace {

// What the forward and its backward share; rows is a view of the output's shape.
void validate_tables(const char* name, const NormRope& op, const View& rows) {
  check_count(name, "head_dim", op.head_dim, 1);
  check(op.head_dim % 2 == 0, "{}: head_dim {} is odd", name, op.head_dim);
  check(rows.cols % op.head_dim == 0, "{}: {} columns are not whole heads of {}", name, rows.cols, op.head_dim);
  check_optional_view(name, "weight", op.weight, 1, op.head_dim, {rows.dtype});
  check_view(name, "positions", op.positions, rows.rows, 1, {DType::i32});
  check_optional_view(name, "frequency_index", op.frequency_index, rows.rows, 1, {DType::i32});
  check_count(name, "the number of frequency tables", op.inverse_frequency.rows, 1);
  check_view(name, "inverse_frequency", op.inverse_frequency, op.inverse_frequency.rows, op.head_dim / 2, {DType::f32});
}

}  // namespace

void validate(const NormRope& op) {
  check_view("norm_rope", "x", op.x, op.x.rows, op.x.cols, kFloatTypes);
  validate_tables("norm_rope", op, op.x);
  check_view("norm_rope", "y", op.y, op.x.rows, op.x.cols, {op.x.dtype});
}

void validate(const NormRopeBackward& op) {
  const char* const name = "norm_rope_backward";
  const View& dx = op.dx;
  check_view(name, "dx", dx, dx.rows, dx.cols, kFloatTypes);
  validate_tables(name, op.forward, dx);
  check_view(name, "dy", op.dy, dx.rows, dx.cols, kFloatTypes);
  check(op.dweight.absent() == op.forward.weight.absent(), "{}: one of weight and dweight is absent", name);
  if (op.forward.weight.absent()) return;
  check_view(name, "x", op.forward.x, dx.rows, dx.cols, {dx.dtype});
  check_view(name, "dweight", op.dweight, 1, op.forward.head_dim, {DType::f32});
}

Cost cost_of(const NormRope& op) {
  return {CostKind::memory, 7.0 * static_cast<double>(op.x.elements()),
          static_cast<double>(op.x.bytes() + op.y.bytes())};
}

Cost cost_of(const NormRopeBackward& op) {
  return {CostKind::memory, 14.0 * static_cast<double>(op.dx.elements()),
          static_cast<double>(op.forward.x.bytes() + op.dy.bytes() + op.dx.bytes())};
}

}  // namespace megatoken
