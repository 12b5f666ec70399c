// Final norm, head product and cross-entropy of the labelled rows, forward and backward of a tile at once: logits of
// more than loss_tile rows never exist, and rows without a target cost nothing.
#pragma once

#include "model/parameters.h"
#include "spec/policy.h"
#include "step/step_ops.h"

namespace megatoken {

struct LabelledRows {
  View index;   // [n, 1] i32, local rows with a target
  View labels;  // [n, 1] i32
  // Results, float32 [n, 1]; see ops/cross_entropy.h.
  View loss;
  View correct;
  View entropy;
};

struct LossGradients {
  View norm;    // [1, H] f32, added to
  View weight;  // [V, H] f32, added to
  View dx;      // [rows, H] zeroed by the caller; the labelled rows are written
};

// weight: [V, H] head weight (the embedding when tied). gradients: null for evaluation.
// Gradients are of the sum of the losses.
void loss_head(StepOps& ops, const ModelSpec& spec, const Policy& policy, const View& norm, const View& weight,
               const View& x, const LabelledRows& rows, const LossGradients* gradients);

}  // namespace megatoken
