#include "schedule/attention_schedule.h"

#include <algorithm>

#include "base/error.h"

namespace megatoken {
namespace {

struct KeyRange {
  int64 begin;
  int64 count;
};

// Appends a block, cut so that no piece has more than kv_block keys: a rectangle into rectangles, a causal square into
// squares on the diagonal and the rectangles below them.
void append_cut(std::vector<AttentionBlock>& blocks, const AttentionBlock& whole, int64 kv_block) {
  if (kv_block == 0 || whole.key_count <= kv_block) {
    blocks.push_back(whole);
    return;
  }
  for (int64 k = 0; k < whole.key_count; k += kv_block) {
    const int64 count = std::min(kv_block, whole.key_count - k);
    const bool first = whole.first && k == 0;
    const int64 below = whole.causal ? k + count : 0;  // queries from here on see all of these keys
    if (whole.causal) blocks.push_back({whole.query_begin + k, count, whole.key_begin + k, count, true, first});
    if (below < whole.query_count)
      blocks.push_back(
          {whole.query_begin + below, whole.query_count - below, whole.key_begin + k, count, false, first});
  }
}

// Key ranges that are adjacent in memory become one.
std::vector<KeyRange> merge_adjacent(std::vector<KeyRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const KeyRange& a, const KeyRange& b) { return a.begin < b.begin; });
  std::vector<KeyRange> merged;
  for (const KeyRange& r : ranges) {
    if (!merged.empty() && merged.back().begin + merged.back().count == r.begin)
      merged.back().count += r.count;
    else
      merged.push_back(r);
  }
  return merged;
}

// Blocks of one query segment against the given full key ranges and, when own is set, its own causal square.
void append_segment(std::vector<AttentionBlock>& blocks, const Segment& query, std::vector<KeyRange> full,
                    const KeyRange* own, bool& first, int64 kv_block) {
  for (const KeyRange& r : merge_adjacent(std::move(full))) {
    append_cut(blocks, {query.row, query.length, r.begin, r.count, false, first}, kv_block);
    first = false;
  }
  if (own != nullptr) {
    append_cut(blocks, {query.row, query.length, own->begin, own->count, true, first}, kv_block);
    first = false;
  }
}

}  // namespace

AttentionSchedule make_attention_schedule(const TokenLayout& layout, int64 rank, int64 kv_block, KvExchange exchange) {
  AttentionSchedule schedule;
  schedule.padding = layout.padding(rank);
  const int64 num_documents = static_cast<int64>(layout.document_lengths().size());
  // Segments by document and holder; a ring phase addresses keys by the holder's local rows.
  struct Held {
    Segment segment;
    int64 holder;
  };
  std::vector<std::vector<Held>> by_document(static_cast<std::size_t>(num_documents));
  for (int64 holder = 0; holder < layout.cp(); ++holder)
    for (const Segment& s : layout.segments(holder)) by_document[static_cast<std::size_t>(s.document)].push_back({s, holder});

  const bool ring = exchange == KvExchange::ring && layout.cp() > 1;
  const int64 num_phases = ring ? layout.cp() : 1;
  const auto& queries = layout.segments(rank);
  std::vector<bool> first(queries.size(), true);
  for (int64 p = 0; p < num_phases; ++p) {
    AttentionPhase phase;
    phase.source = ring ? (rank - p + layout.cp()) % layout.cp() : -1;
    for (std::size_t i = 0; i < queries.size(); ++i) {
      const Segment& query = queries[i];
      std::vector<KeyRange> full;
      KeyRange own{};
      bool has_own = false;
      for (const Held& key : by_document[static_cast<std::size_t>(query.document)]) {
        if (ring && key.holder != phase.source) continue;
        const KeyRange range{ring ? key.segment.row : key.segment.gathered_row, key.segment.length};
        if (key.segment.first_position < query.first_position) full.push_back(range);
        if (key.segment.first_position == query.first_position) {
          own = range;
          has_own = true;
        }
      }
      bool is_first = first[i];
      append_segment(phase.blocks, query, std::move(full), has_own ? &own : nullptr, is_first, kv_block);
      first[i] = is_first;
    }
    schedule.phases.push_back(std::move(phase));
  }

  for (const Segment& query : queries) {
    int64 met = 0;
    for (const AttentionPhase& phase : schedule.phases)
      for (const AttentionBlock& b : phase.blocks)
        if (b.query_begin < query.row + query.length && query.row < b.query_begin + b.query_count) ++met;
    check(met > 0, "rows {}+{} meet no keys", query.row, query.length);
    schedule.queries.push_back({query.row, query.length, met == 1});
  }
  for (const AttentionPhase& phase : schedule.phases)
    for (const AttentionBlock& b : phase.blocks) {
      schedule.max_queries = std::max(schedule.max_queries, b.query_count);
      schedule.max_keys = std::max(schedule.max_keys, b.key_count);
      const double all = static_cast<double>(b.query_count) * static_cast<double>(b.key_count);
      const double masked = static_cast<double>(b.query_count) * static_cast<double>(b.query_count - 1) / 2;
      schedule.pairs += b.causal ? all - masked : all;
    }
  return schedule;
}

}  // namespace megatoken
