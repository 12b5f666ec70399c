// SwiGLU (Shazeer 2020): act = silu(gate) * up; gate and up are the two halves of one matrix.
#pragma once

#include "ops/cost.h"
#include "tensor/view.h"

namespace megatoken {

struct Swiglu {
  View gate_up;  // [T, 2I], gate then up; f32 or bf16
  View act;      // [T, I] dtype of gate_up
};

struct SwigluBackward {
  View gate_up;   // [T, 2I]
  View dact;      // [T, I] dtype of gate_up
  View dgate_up;  // [T, 2I] dtype of gate_up; may be gate_up itself
};

void validate(const Swiglu& op);
void validate(const SwigluBackward& op);
Cost cost_of(const Swiglu& op);
Cost cost_of(const SwigluBackward& op);

}  // namespace megatoken
