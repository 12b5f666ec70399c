// Rows picked out by index and put back.
#pragma once

#include "ops/cost.h"
#include "tensor/view.h"

namespace megatoken {

struct GatherRows {
  View x;      // [T, H] any dtype
  View index;  // [n, 1] i32, each in [0, T)
  View y;      // [n, H] dtype of x: y[i] = x[index[i]]
};

struct ScatterRows {
  View x;      // [n, H] f32 or bf16
  View index;  // [n, 1] i32, distinct, each in [0, T)
  View y;      // [T, H] dtype of x: y[index[i]] = x[i]; other rows are left alone
};

void validate(const GatherRows& op);
void validate(const ScatterRows& op);
Cost cost_of(const GatherRows& op);
Cost cost_of(const ScatterRows& op);

}  // namespace megatoken
