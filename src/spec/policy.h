// What the planner decides about a step. Results are equal under every policy; memory and time are not.
#pragma once

#include <vector>

#include "base/dtype.h"

namespace megatoken {

// Where a per-layer activation waits between forward and backward.
enum class Keep { device, host, recompute };

enum class KvExchange { allgather, ring };

struct Policy {
  int64 token_tile = 0;   // tokens per tile of the token-wise work; 0 = all
  int64 loss_tile = 0;    // labelled rows per tile of the loss head; 0 = all
  int64 head_groups = 1;  // the KV heads are cut into this many groups; divides num_kv_heads
  int64 kv_block = 0;     // keys per attention block; 0 = all
  std::vector<Keep> layer_input;       // one entry a layer; contiguous runs
  std::vector<Keep> attention_output;  // one entry a layer; contiguous runs
  // Layers whose input is recomputed are walked back in segments of this many: the first layer's input of each segment
  // is kept (on the device or the host), the others are recomputed from it; no attention is run again when attention
  // outputs are kept.
  int64 recompute_segment = 4;
  Keep segment_input = Keep::device;
  int64 prefetch = 1;     // layers fetched ahead in backward (0 or 1)
  KvExchange exchange = KvExchange::allgather;

  bool operator==(const Policy&) const = default;
};

}  // namespace megatoken
