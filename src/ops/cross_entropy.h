// Softmax cross-entropy of a tile of logits, with what the log reports, and its gradient in the same pass.
//   loss = log(sum(exp(z))) - z[label]; entropy = log(sum(exp(z))) - sum(softmax(z) z), both in nats, float32.
// The gradient is of the SUM of losses (softmax - onehot); the division by the target count happens once, at the update.
#pragma once

#include "ops/cost.h"
#include "tensor/view.h"

namespace megatoken {

struct CrossEntropy {
  View logits;   // [n, V] f32
  View labels;   // [n, 1] i32, each in [0, V)
  View loss;     // [n, 1] f32
  View correct;  // [n, 1] f32: 1 where the first largest logit is the label, else 0
  View entropy;  // [n, 1] f32
  View dlogits;  // [n, V] f32 (may be logits itself) or bf16; absent: evaluation, no gradient
};

void validate(const CrossEntropy& op);
Cost cost_of(const CrossEntropy& op);

}  // namespace megatoken
