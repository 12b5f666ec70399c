#include "ops/rms_norm.h"

#include "ops/shape_check.h"

namespace megatoken {

void validate(const RmsNorm& op) {
  check_view("rms_norm", "x", op.x, op.x.rows, op.x.cols, kFloatTypes);
  check_view("rms_norm", "weight", op.weight, 1, op.x.cols, {op.x.dtype});
  check_view("rms_norm", "y", op.y, op.x.rows, op.x.cols, {op.x.dtype});
}

void validate(const RmsNormBackward& op) {
  check_view("rms_norm_backward", "x", op.x, op.x.rows, op.x.cols, kFloatTypes);
  check_view("rms_norm_backward", "weight", op.weight, 1, op.x.cols, {op.x.dtype});
  check_view("rms_norm_backward", "dy", op.dy, op.x.rows, op.x.cols, kFloatTypes);
  check_view("rms_norm_backward", "dx", op.dx, op.x.rows, op.x.cols, kFloatTypes);
  check_optional_view("rms_norm_backward", "residual", op.residual, op.x.rows, op.x.cols, {op.dx.dtype});
  check_view("rms_norm_backward", "dweight", op.dweight, 1, op.x.cols, {DType::f32});
}

Cost cost_of(const RmsNorm& op) {
  return {CostKind::memory, 4.0 * static_cast<double>(op.x.elements()),
          static_cast<double>(op.x.bytes() + op.y.bytes())};
}

Cost cost_of(const RmsNormBackward& op) {
  return {CostKind::memory, 10.0 * static_cast<double>(op.x.elements()),
          static_cast<double>(op.x.bytes() + op.dy.bytes() + op.residual.bytes() + op.dx.bytes())};
}

}  // namespace megatoken
