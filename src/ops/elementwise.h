// Small element-wise ops on strided matrices; f32 and bf16 may be mixed unless said otherwise. Sums are float32.
#pragma once

#include "ops/cost.h"
#include "tensor/view.h"

namespace megatoken {

struct Convert {  // y = x in y's dtype (round to nearest even)
  View x;
  View y;
};

struct Accumulate {  // y += x
  View x;
  View y;
};

struct AddBias {  // y[t, :] += bias
  View y;     // [T, N]
  View bias;  // [1, N]
};

struct BiasGradient {  // dbias += column sums of dy; deterministic
  View dy;     // [T, N]
  View dbias;  // [1, N] f32
};

struct FillZero {
  View y;  // any dtype
};

struct SumSquares {  // result[0] += sum of x^2, summed in float64; deterministic
  View x;       // [1, n] f32
  View result;  // [1, 1] f64
};

void validate(const Convert& op);
void validate(const Accumulate& op);
void validate(const AddBias& op);
void validate(const BiasGradient& op);
void validate(const FillZero& op);
void validate(const SumSquares& op);
Cost cost_of(const Convert& op);
Cost cost_of(const Accumulate& op);
Cost cost_of(const AddBias& op);
Cost cost_of(const BiasGradient& op);
Cost cost_of(const FillZero& op);
Cost cost_of(const SumSquares& op);

}  // namespace megatoken
