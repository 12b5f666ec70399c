// Moves buckets between shards and whole: weights gathered ahead of use, gradients reduced behind it. With one shard
// nothing moves and nothing is copied.
#pragma once

#include "comm/group.h"
#include "parallel/sharded_parameters.h"
#include "step/step_ops.h"

namespace megatoken {

class WeightGather {
 public:
  // lead: layers gathered ahead (0 or 1). group: the shards' group; null when nothing executes.
  // first_layer, num_layers: the buckets that share a ring of lead + 1 slots; others get a buffer of their own.
  WeightGather(StepOps& ops, const ShardedParameters& parameters, Group* group, int64 first_layer, int64 num_layers,
               int64 lead);

  struct Handle {
    Buffer buffer;
    View view;
    Ticket ticket;
  };
  // Begins gathering a bucket on the exchange stream.
  Handle start(int64 bucket);
  // compute waits; returns [1, padded_elements] in the weights' dtype, valid while the handle lives.
  View wait(const Handle& handle);

 private:
  StepOps& ops_;
  const ShardedParameters& parameters_;
  Group* group_;
  int64 first_layer_, num_layers_;
  Ring ring_;
};

class GradientReduce {
 public:
  GradientReduce(StepOps& ops, const ShardedParameters& parameters, Group* group, int64 first_layer, int64 num_layers);

  struct Handle {
    int64 bucket = -1;
    Buffer buffer;
    View view;
  };
  // A float32 [1, padded_elements] sum to add a bucket's gradient to: the accumulated gradient itself with one shard,
  // else a zeroed buffer.
  Handle begin(int64 bucket);
  // Adds the sum over ranks to this rank's gradient shard, on the exchange stream, behind compute. The ticket frees the
  // bucket's buffers.
  Ticket end(Handle handle);

 private:
  StepOps& ops_;
  const ShardedParameters& parameters_;
  Group* group_;
  int64 first_layer_, num_layers_;
  Ring ring_;
  Ring reduced_;
};

}  // namespace megatoken
