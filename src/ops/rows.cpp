#include "ops/rows.h"

#include "ops/shape_check.h"

namespace megatoken {

void validate(const GatherRows& op) {
  check_view("gather_rows", "x", op.x, op.x.rows, op.x.cols, {op.x.dtype});
  check_view("gather_rows", "index", op.index, op.y.rows, 1, {DType::i32});
  check_view("gather_rows", "y", op.y, op.y.rows, op.x.cols, {op.x.dtype});
}

void validate(const ScatterRows& op) {
  check_view("scatter_rows", "x", op.x, op.x.rows, op.x.cols, kFloatTypes);
  check_view("scatter_rows", "index", op.index, op.x.rows, 1, {DType::i32});
  check_view("scatter_rows", "y", op.y, op.y.rows, op.x.cols, {op.x.dtype});
}

Cost cost_of(const GatherRows& op) { return {CostKind::memory, 0, 2.0 * static_cast<double>(op.y.bytes())}; }
Cost cost_of(const ScatterRows& op) { return {CostKind::memory, 0, 2.0 * static_cast<double>(op.x.bytes())}; }

}  // namespace megatoken
