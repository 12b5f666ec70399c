#include "ops/router.h"

#include "ops/shape_check.h"

namespace megatoken {
namespace {

void check_choice(std::string_view op, const View& rows, const View& experts) {
  check(experts.cols >= 1 && experts.cols <= rows.cols, "{}: {} of {} experts", op, experts.cols, rows.cols);
  check_view(op, "experts", experts, rows.rows, experts.cols, {DType::i32});
}

}  // namespace

void validate(const Router& op) {
  check_view("router", "logits", op.logits, op.logits.rows, op.logits.cols, {DType::f32});
  check_choice("router", op.logits, op.experts);
  check_view("router", "weights", op.weights, op.logits.rows, op.experts.cols, {DType::f32});
}

void validate(const RouterBackward& op) {
  check_view("router_backward", "logits", op.logits, op.logits.rows, op.logits.cols, {DType::f32});
  check_choice("router_backward", op.logits, op.experts);
  check_view("router_backward", "weights", op.weights, op.logits.rows, op.experts.cols, {DType::f32});
  check_view("router_backward", "dweights", op.dweights, op.logits.rows, op.experts.cols, {DType::f32});
  check_optional_view("router_backward", "balance", op.balance, 1, op.logits.cols, {DType::f32});
  if (!op.balance.absent()) check_view("router_backward", "counted", op.counted, op.logits.rows, 1, {DType::u8});
  check_view("router_backward", "dlogits", op.dlogits, op.logits.rows, op.logits.cols, kFloatTypes);
}

void validate(const RouterStatistics& op) {
  const View& p = op.probabilities;
  check_view("router_statistics", "probabilities", p, p.rows, p.cols, {DType::f32});
  check_choice("router_statistics", p, op.experts);
  check_view("router_statistics", "counted", op.counted, p.rows, 1, {DType::u8});
  check_view("router_statistics", "sums", op.sums, 1, 2 * p.cols, {DType::f64});
}

void validate(const BalanceLoss& op) {
  check_view("balance_loss", "gradient", op.gradient, 1, op.gradient.cols, {DType::f32});
  check_view("balance_loss", "sums", op.sums, op.sums.rows, 2 * op.gradient.cols, {DType::f64});
  check_view("balance_loss", "loss", op.loss, 1, 1, {DType::f32});
  check(op.rows >= 0, "balance_loss: {} rows", op.rows);
}

Cost cost_of(const Router& op) {
  return {CostKind::memory, 6.0 * static_cast<double>(op.logits.elements()),
          static_cast<double>(2 * op.logits.bytes() + op.experts.bytes() + op.weights.bytes())};
}

Cost cost_of(const RouterBackward& op) {
  return {CostKind::memory, 10.0 * static_cast<double>(op.logits.elements()),
          static_cast<double>(op.logits.bytes() + op.dlogits.bytes() + 3 * op.weights.bytes())};
}

Cost cost_of(const RouterStatistics& op) {
  return {CostKind::memory, static_cast<double>(op.probabilities.elements()),
          static_cast<double>(op.probabilities.bytes() + op.experts.bytes() + op.counted.bytes())};
}

Cost cost_of(const BalanceLoss& op) {
  return {CostKind::memory, 3.0 * static_cast<double>(op.sums.elements()),
          static_cast<double>(op.sums.bytes() + op.gradient.bytes())};
}

}  // namespace megatoken
