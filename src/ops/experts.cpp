#include "ops/experts.h"

#include <limits>

#include "ops/experts_sort.h"
#include "ops/shape_check.h"

namespace megatoken {
namespace {

// Assignments of M sorted rows: [T, k] with T k = M, or one a row.
void check_position(std::string_view op, const View& position, const View& assignments, int64 sorted_rows) {
  check(assignments.elements() == sorted_rows, "{}: {} rows of {} assignments", op, sorted_rows,
        assignments.elements());
  if (position.absent())
    check(assignments.cols == 1, "{}: {} experts a token without positions", op, assignments.cols);
  else
    check_view(op, "position", position, assignments.rows, assignments.cols, {DType::i32});
}

}  // namespace

int64 sort_by_expert_workspace(int64 assignments, int64 experts) {
  return (assignments + kSortPiece - 1) / kSortPiece * experts * 4;
}

void validate(const SortByExpert& op) {
  const int64 n = op.experts.elements();
  check(n <= std::numeric_limits<std::int32_t>::max(), "sort_by_expert: {} assignments", n);
  check_count("sort_by_expert", "experts", op.offsets.cols - 1, 1);
  check_view("sort_by_expert", "experts", op.experts, op.experts.rows, op.experts.cols, {DType::i32});
  check_view("sort_by_expert", "offsets", op.offsets, 1, op.offsets.cols, {DType::i32});
  check_view("sort_by_expert", "source", op.source, n, 1, {DType::i32});
  check_view("sort_by_expert", "position", op.position, op.experts.rows, op.experts.cols, {DType::i32});
  check(op.workspace.bytes() >= sort_by_expert_workspace(n, op.offsets.cols - 1),
        "sort_by_expert: workspace of {} bytes", op.workspace.bytes());
}

void validate(const CombineExperts& op) {
  constexpr std::string_view kName = "combine_experts";
  View assignments = op.position.absent() ? op.weights : op.position;
  if (assignments.absent()) {
    assignments.rows = op.out.rows;
    assignments.cols = 1;
  }
  check_position(kName, op.position, assignments, op.rows.rows);
  check_view(kName, "rows", op.rows, op.rows.rows, op.out.cols, kFloatTypes);
  check_optional_view(kName, "weights", op.weights, assignments.rows, assignments.cols, {DType::f32});
  check_view(kName, "out", op.out, assignments.rows, op.out.cols, kFloatTypes);
  check_optional_view(kName, "addend", op.addend, op.out.rows, op.out.cols, {op.out.dtype});
}

void validate(const ExpertSwigluBackward& op) {
  constexpr std::string_view kName = "expert_swiglu_backward";
  check_position(kName, op.position, op.weights, op.dact.rows);
  check_view(kName, "dact", op.dact, op.dact.rows, op.dact.cols, kFloatTypes);
  check_view(kName, "gate_up", op.gate_up, op.dact.rows, 2 * op.dact.cols, {op.dact.dtype});
  check_view(kName, "weights", op.weights, op.weights.rows, op.weights.cols, {DType::f32});
  check_view(kName, "dweights", op.dweights, op.weights.rows, op.weights.cols, {DType::f32});
}

void validate(const Sigmoid& op) {
  check_view("sigmoid", "x", op.x, op.x.rows, op.x.cols, {DType::f32});
  check_view("sigmoid", "y", op.y, op.x.rows, op.x.cols, {DType::f32});
}

void validate(const SigmoidBackward& op) {
  check_view("sigmoid_backward", "y", op.y, op.y.rows, op.y.cols, {DType::f32});
  check_view("sigmoid_backward", "dy", op.dy, op.y.rows, op.y.cols, {DType::f32});
  check_view("sigmoid_backward", "dx", op.dx, op.y.rows, op.y.cols, kFloatTypes);
}

Cost cost_of(const SortByExpert& op) {
  return {CostKind::memory, 0,
          4.0 * static_cast<double>(op.experts.bytes()) + static_cast<double>(op.workspace.bytes())};
}

Cost cost_of(const CombineExperts& op) {
  return {CostKind::memory, 2.0 * static_cast<double>(op.rows.elements()),
          static_cast<double>(op.rows.bytes() + op.addend.bytes() + op.out.bytes())};
}

Cost cost_of(const ExpertSwigluBackward& op) {
  return {CostKind::memory, 16.0 * static_cast<double>(op.dact.elements()),
          2.0 * static_cast<double>(op.gate_up.bytes() + op.dact.bytes())};
}

Cost cost_of(const Sigmoid& op) {
  return {CostKind::memory, 3.0 * static_cast<double>(op.x.elements()), 2.0 * static_cast<double>(op.x.bytes())};
}

Cost cost_of(const SigmoidBackward& op) {
  return {CostKind::memory, 3.0 * static_cast<double>(op.y.elements()),
          static_cast<double>(op.y.bytes() + op.dy.bytes() + op.dx.bytes())};
}

}  // namespace megatoken
