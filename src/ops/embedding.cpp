#include "ops/embedding.h"

#include "ops/shape_check.h"

namespace megatoken {

void validate(const Embedding& op) {
  check_view("embedding", "ids", op.ids, op.y.rows, 1, {DType::i32});
  check_view("embedding", "table", op.table, op.table.rows, op.y.cols, kFloatTypes);
  check_view("embedding", "y", op.y, op.y.rows, op.y.cols, {op.table.dtype});
}

void validate(const EmbeddingBackward& op) {
  check_view("embedding_backward", "ids", op.ids, op.dy.rows, 1, {DType::i32});
  check_view("embedding_backward", "dy", op.dy, op.dy.rows, op.dy.cols, kFloatTypes);
  check_view("embedding_backward", "dtable", op.dtable, op.dtable.rows, op.dy.cols, {DType::f32});
}

Cost cost_of(const Embedding& op) { return {CostKind::memory, 0, 2.0 * static_cast<double>(op.y.bytes())}; }

Cost cost_of(const EmbeddingBackward& op) {
  const auto elements = static_cast<double>(op.dy.elements());
  return {CostKind::memory, elements, static_cast<double>(op.dy.bytes()) + 8.0 * elements};
}

}  // namespace megatoken
