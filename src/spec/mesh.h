// How ranks are arranged. rank = (replica * dp_shard + shard) * cp + context: the ranks of one sequence are neighbours.
#pragma once

#include "base/dtype.h"

namespace megatoken {

struct Mesh {
  int64 dp_replicate = 1;
  int64 dp_shard = 1;
  int64 cp = 1;

  int64 size() const { return dp_replicate * dp_shard * cp; }
  int64 dp() const { return dp_replicate * dp_shard; }   // data-parallel width: distinct rows per micro-step
  int64 shards() const { return dp_shard * cp; }         // parameters, gradients and state are cut this many ways

  int64 cp_rank(int64 rank) const { return rank % cp; }
  int64 dp_rank(int64 rank) const { return rank / cp; }
  int64 shard_rank(int64 rank) const { return rank % shards(); }
  int64 replica(int64 rank) const { return rank / shards(); }
};

}  // namespace megatoken
