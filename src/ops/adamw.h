// AdamW (Loshchilov and Hutter 2019, algorithm 2) on a flat piece of the state, as torch.optim.AdamW computes it:
//   g = grad * gradient_scale; w -= lr * weight_decay * w; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
//   w -= lr / (1 - b1^step) * m / (sqrt(v) / sqrt(1 - b2^step) + eps).
// The float32 master of a bf16 weight is the weight plus a 16-bit remainder: master bits = (weight bits << 16) +
// int16(remainder). The weight is the master rounded to nearest, ties away from zero, and the pair is exact for every
// one of the 2^32 bit patterns. A finite master above bf16's largest has an infinite weight; a NaN master may have any
// (its remainder still brings it back): non-finite values stop the training before they get here.
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
  // float64, as torch computes with them: 1 - 0.999f is 1.3e-5 off 0.001.
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
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
