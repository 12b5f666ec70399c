// The optimizer's part of a step, on this rank's shards. All functions run a step of the context to its finish().
#pragma once

#include "comm/group.h"
#include "parallel/sharded_parameters.h"
#include "step/step_ops.h"

namespace megatoken {

// Sum of squares of this rank's accumulated gradient, float64. Padding adds nothing.
double gradient_sum_squares(StepOps& ops, const ShardedParameters& parameters);

// Adds the accumulated gradients of the replicas (dp_replicate groups) of every bucket. group: ranks that hold the same
// shard; null when nothing executes. Nothing to do with one replica.
void reduce_replicas(StepOps& ops, const ShardedParameters& parameters, Group* group, int64 replicas);

struct UpdateSettings {
  double gradient_scale = 1;  // clip coefficient / global target count
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  int64 step = 1;  // of this update, from 1
};
// AdamW on every bucket, then the gradients are zeroed for the next accumulation. Weight decay applies where the
// parameter's specification says so. Moments in host memory are streamed through the device by tiles.
void apply_update(StepOps& ops, const ShardedParameters& parameters, const UpdateSettings& settings);

}  // namespace megatoken
