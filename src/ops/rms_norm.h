// RMS norm over rows (Zhang and Sennrich 2019, eq. 4): y = x / sqrt(mean(x^2) + eps) * weight, statistics in float32.
// As transformers computes it, x / rms is rounded to the storage type before the multiplication by weight.
#pragma once

#include "ops/cost.h"
#include "tensor/view.h"

namespace megatoken {

struct RmsNorm {
  View x;       // [T, H] f32 or bf16
  View weight;  // [1, H] dtype of x
  View y;       // [T, H] dtype of x
  float eps = 1e-6f;
};

struct RmsNormBackward {
  View x;         // [T, H] the forward's input
  View weight;    // [1, H]
  View dy;        // [T, H] f32 or bf16 (may be f32 where x is bf16)
  View residual;  // [T, H] dtype of dx, added to the result; absent: nothing; may be dx itself
  View dx;        // [T, H] f32 or bf16
  View dweight;   // [1, H] f32, added to; deterministic
  float eps = 1e-6f;
};

void validate(const RmsNorm& op);
void validate(const RmsNormBackward& op);
Cost cost_of(const RmsNorm& op);
Cost cost_of(const RmsNormBackward& op);

}  // namespace megatoken
