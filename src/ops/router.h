// The router of a sparse layer: p = softmax(logits) over all experts in float32; a token goes to its k most probable
// experts, weighted by p, or by p / sum of the k (Qwen3-MoE's norm_topk_prob, Mixtral). Among equal probabilities the
// expert with the lowest number comes first (torch leaves their order open).
//
// The load-balancing loss (Fedus et al. 2021, eq. 4-6, as transformers computes it over all sparse layers at once):
//   loss = E sum_e (C_e / R) (S_e / R), C_e: assignments to expert e, S_e: sum of p_e, R: rows (tokens x layers),
// padding counted nowhere. C is constant to the gradient: dloss/dp_e = E C_e / R^2 for every counted row.
#pragma once

#include "ops/cost.h"
#include "tensor/view.h"

namespace megatoken {

struct Router {
  View logits;   // [T, E] f32; overwritten by p
  View experts;  // [T, k] i32, most probable first; always k different experts in [0, E), whatever the logits
  View weights;  // [T, k] f32
  bool normalize = false;
};

struct RouterBackward {
  View logits;    // [T, E] f32
  View experts;   // [T, k] i32 the forward's
  View weights;   // [T, k] f32 the forward's
  View dweights;  // [T, k] f32
  View balance;   // [1, E] f32 gradient of every counted row's p, see BalanceLoss; absent: none
  View counted;   // [T, 1] u8, with balance
  View dlogits;   // [T, E] f32 (may be logits itself) or bf16
  bool normalize = false;
};

struct RouterStatistics {  // sums += (C, S) of these rows; deterministic
  View probabilities;      // [T, E] f32
  View experts;            // [T, k] i32
  View counted;            // [T, 1] u8: 0 for padding
  View sums;               // [1, 2E] f64: C then S
};

struct BalanceLoss {
  View sums;                  // [n, 2E] f64: parts of the sums, added up in order
  double rows = 0;            // R; 0: loss and gradient are 0
  double gradient_scale = 1;  // factor of the gradient alone
  View loss;                  // [1, 1] f32
  View gradient;              // [1, E] f32: gradient_scale * E C_e / R^2
};

void validate(const Router& op);
void validate(const RouterBackward& op);
void validate(const RouterStatistics& op);
void validate(const BalanceLoss& op);
Cost cost_of(const Router& op);
Cost cost_of(const RouterBackward& op);
Cost cost_of(const RouterStatistics& op);
Cost cost_of(const BalanceLoss& op);

}  // namespace megatoken
