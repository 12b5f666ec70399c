// Attention of one rank as data: which block of queries meets which block of keys, under which mask, and in which phase
// the keys are resident. The block executor runs any such list; all-gather, ring, key blocks and packed documents are
// different lists, not different code. Blocks are rectangles and causal squares on the diagonal: GPU kernels skip masked
// work in both directions only there (docs/cudnn.md).
#pragma once

#include <vector>

#include "schedule/token_layout.h"
#include "spec/policy.h"

namespace megatoken {

struct AttentionBlock {
  int64 query_begin = 0;  // local row
  int64 query_count = 0;
  int64 key_begin = 0;  // row of the phase's resident keys
  int64 key_count = 0;
  bool causal = false;  // a square: query i sees keys 0 ... i; else every query sees every key
  bool first = false;   // the first block these queries meet: nothing to merge with yet
};

// Queries that are accumulated together: one segment of one document.
struct QueryRange {
  int64 begin = 0;  // local row
  int64 count = 0;
  bool single = false;  // met by exactly one block in all phases: its output needs no merging
};

struct AttentionPhase {
  int64 source = 0;  // rank whose keys are resident (ring); all ranks' (allgather): -1
  std::vector<AttentionBlock> blocks;
};

struct AttentionSchedule {
  std::vector<QueryRange> queries;
  std::vector<AttentionPhase> phases;
  std::vector<TokenLayout::RowRange> padding;  // rows whose output is zero
  int64 max_queries = 0;                       // over blocks
  int64 max_keys = 0;
  double pairs = 0;  // query-key pairs that are computed
};

// kv_block: longest key range of a block, 0 = no limit. Pure; the same on every call.
AttentionSchedule make_attention_schedule(const TokenLayout& layout, int64 rank, int64 kv_block, KvExchange exchange);

}  // namespace megatoken
