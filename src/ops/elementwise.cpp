#include "ops/elementwise.h"

#include "ops/shape_check.h"

namespace megatoken {

void validate(const Convert& op) {
  check_view("convert", "x", op.x, op.x.rows, op.x.cols, kFloatTypes);
  check_view("convert", "y", op.y, op.x.rows, op.x.cols, kFloatTypes);
}

void validate(const Accumulate& op) {
  check_view("accumulate", "x", op.x, op.x.rows, op.x.cols, kFloatTypes);
  check_view("accumulate", "y", op.y, op.x.rows, op.x.cols, kFloatTypes);
}

void validate(const AddBias& op) {
  check_view("add_bias", "y", op.y, op.y.rows, op.y.cols, kFloatTypes);
  check_view("add_bias", "bias", op.bias, 1, op.y.cols, kFloatTypes);
}

void validate(const BiasGradient& op) {
  check_view("bias_gradient", "dy", op.dy, op.dy.rows, op.dy.cols, kFloatTypes);
  check_view("bias_gradient", "dbias", op.dbias, 1, op.dy.cols, {DType::f32});
}

void validate(const FillZero& op) { check_view("fill_zero", "y", op.y, op.y.rows, op.y.cols, {op.y.dtype}); }

void validate(const SumSquares& op) {
  check_view("sum_squares", "x", op.x, 1, op.x.cols, {DType::f32});
  check_view("sum_squares", "result", op.result, 1, 1, {DType::f64});
}

Cost cost_of(const Convert& op) { return {CostKind::memory, 0, static_cast<double>(op.x.bytes() + op.y.bytes())}; }

Cost cost_of(const Accumulate& op) {
  return {CostKind::memory, static_cast<double>(op.x.elements()), static_cast<double>(op.x.bytes() + 2 * op.y.bytes())};
}

Cost cost_of(const AddBias& op) {
  return {CostKind::memory, static_cast<double>(op.y.elements()), 2.0 * static_cast<double>(op.y.bytes())};
}

Cost cost_of(const BiasGradient& op) {
  return {CostKind::memory, static_cast<double>(op.dy.elements()), static_cast<double>(op.dy.bytes())};
}

Cost cost_of(const FillZero& op) { return {CostKind::memory, 0, static_cast<double>(op.y.bytes())}; }

Cost cost_of(const SumSquares& op) {
  return {CostKind::memory, 2.0 * static_cast<double>(op.x.elements()), static_cast<double>(op.x.bytes())};
}

}  // namespace megatoken
