#include "ops/cross_entropy.h"

#include "ops/shape_check.h"

namespace megatoken {

void validate(const CrossEntropy& op) {
  const int64 n = op.logits.rows;
  check_view("cross_entropy", "logits", op.logits, n, op.logits.cols, {DType::f32});
  check_count("cross_entropy", "the vocabulary", op.logits.cols, 1);
  check_view("cross_entropy", "labels", op.labels, n, 1, {DType::i32});
  check_view("cross_entropy", "loss", op.loss, n, 1, {DType::f32});
  check_view("cross_entropy", "correct", op.correct, n, 1, {DType::f32});
  check_view("cross_entropy", "entropy", op.entropy, n, 1, {DType::f32});
  check_optional_view("cross_entropy", "dlogits", op.dlogits, n, op.logits.cols, kFloatTypes);
}

Cost cost_of(const CrossEntropy& op) {
  return {CostKind::memory, 12.0 * static_cast<double>(op.logits.elements()),
          static_cast<double>(2 * op.logits.bytes() + op.dlogits.bytes())};
}

}  // namespace megatoken
