// Moves buckets between shards and whole, and between host and device: weights brought ahead of use, gradients sent
// back behind it. With one shard on the device nothing moves and nothing is copied.
#pragma once

#include <map>

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
    Buffer shard;  // of weights that live on the host
    Buffer buffer;
    View view;
    Ticket ticket;
  };
  // Begins bringing a bucket: from the host, then from the other shards.
  Handle start(int64 bucket);
  // compute waits; returns [1, padded_elements] in the weights' dtype, valid while the handle lives.
  View wait(Handle& handle);

 private:
  StepOps& ops_;
  const ShardedParameters& parameters_;
  Group* group_;
  int64 first_layer_, num_layers_;
  Ring shard_ring_;
  Ring ring_;
};

class GradientReduce {
 public:
  GradientReduce(StepOps& ops, const ShardedParameters& parameters, Group* group, int64 first_layer, int64 num_layers);

  struct Handle {
    int64 bucket = -1;
    Buffer buffer;
    View view;
    Buffer sum;  // of several shards: the accumulated gradient, where it lives on the host
    Ticket fetched;
  };
  // A float32 [1, padded_elements] sum to add a bucket's gradient to: the accumulated gradient itself (or what was
  // fetched of it from the host) with one shard, else a zeroed buffer.
  Handle begin(int64 bucket);
  // Adds the sum over ranks to this rank's gradient shard, on the exchange stream, behind compute, and sends it to
  // where it lives. The ticket frees the bucket's buffers.
  Ticket end(Handle handle);

 private:
  StepOps& ops_;
  const ShardedParameters& parameters_;
  Group* group_;
  int64 first_layer_, num_layers_;
  bool in_place() const { return parameters_.shards() == 1 && !host_; }
  // A slot of the layers' ring, or a buffer of the bucket's own.
  Buffer buffer(Ring& ring, const char* name, int64 bucket, int64 elements);

  bool host_;
  Ring ring_;
  Ring reduced_;
  Ring sums_;
  std::map<int64, Ticket> sent_;  // of buckets outside the layers, which may be met twice
};

}  // namespace megatoken
