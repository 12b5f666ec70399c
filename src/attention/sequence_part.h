// One rank's part of a micro-batch, as attention needs it.
#pragma once

#include "comm/group.h"
#include "schedule/attention_schedule.h"
#include "schedule/token_layout.h"

namespace megatoken {

struct SequencePart {
  const TokenLayout& layout;
  const AttentionSchedule& schedule;  // of this rank
  int64 cp_rank = 0;
  Group* cp_group = nullptr;  // null when nothing executes or cp is 1
  KvExchange exchange = KvExchange::allgather;

  int64 rows() const { return layout.rows(); }
  bool ring() const { return exchange == KvExchange::ring && layout.cp() > 1; }
};

// Heads of one group: a KV head (or several) and the query heads that use it.
struct HeadShape {
  int64 heads = 0;
  int64 kv_heads = 0;
  int64 head_dim = 0;
  float scale = 1;

  int64 query_cols() const { return heads * head_dim; }
  int64 kv_cols() const { return kv_heads * head_dim; }  // of keys or of values
};

}  // namespace megatoken
