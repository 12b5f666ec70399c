#include "ops/swiglu.h"

#include "ops/shape_check.h"

namespace megatoken {

void validate(const Swiglu& op) {
  check_view("swiglu", "gate_up", op.gate_up, op.act.rows, 2 * op.act.cols, kFloatTypes);
  check_view("swiglu", "act", op.act, op.act.rows, op.act.cols, {op.gate_up.dtype});
}

void validate(const SwigluBackward& op) {
  check_view("swiglu_backward", "gate_up", op.gate_up, op.dact.rows, 2 * op.dact.cols, kFloatTypes);
  check_view("swiglu_backward", "dact", op.dact, op.dact.rows, op.dact.cols, {op.gate_up.dtype});
  check_view("swiglu_backward", "dgate_up", op.dgate_up, op.dact.rows, 2 * op.dact.cols, {op.gate_up.dtype});
}

Cost cost_of(const Swiglu& op) {
  return {CostKind::memory, 5.0 * static_cast<double>(op.act.elements()),
          static_cast<double>(op.gate_up.bytes() + op.act.bytes())};
}

Cost cost_of(const SwigluBackward& op) {
  return {CostKind::memory, 12.0 * static_cast<double>(op.dact.elements()),
          static_cast<double>(op.gate_up.bytes() + op.dact.bytes() + op.dgate_up.bytes())};
}

}  // namespace megatoken
