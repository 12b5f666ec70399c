// AdamW (Loshchilov and Hutter 2019, algorithm 2) on a flat piece of the state, as torch.optim.AdamW computes it:
//   g = grad * gradient_scale; w -= lr * weight_decay * w; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
//   w -= lr / (1 - b1^step) * m / (sqrt(v) / sqrt(1 - b2^step) + eps).
// The float32 master of a bf16 weight is the weight plus a 16-bit remainder: master bits = (weight bits << 16) +
// int16(remainder). The weight is the master rounded to nearest, ties away from zero, so that the pair is exact.
#pragma once

#include "ops/cost.h"
#include "tensor/view.h"

namespace megatoken {

struct Adamw {
  View weight;       // [1, n] f32 (the master itself) or bf16
  View remainder;    // [1, n] u16 when weight is bf16; absent when f32
  View grad;         // [1, n] f32; read only
  View exp_avg;      // [1, n] f32
  View exp_avg_sq;   // [1, n] f32
  float gradient_scale = 1;  // clip coefficient / global target count
  float lr = 0;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float eps = 1e-8f;
  float weight_decay = 0;
  int64 step = 1;  // of this update, from 1
};

void validate(const Adamw& op);
Cost cost_of(const Adamw& op);

// The split master (host helpers; also what the kernels do).
struct SplitMaster {
  bf16 weight;
  std::uint16_t remainder;
};
SplitMaster split_master(float master);
float join_master(SplitMaster split);

}  // namespace megatoken
