#include "model/local_batch.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace megatoken {
namespace {

// Frequencies by document: one table, or one for each distinct length where the rope depends on it.
void add_frequencies(LocalBatch& batch, const ModelSpec& spec, std::vector<std::int32_t>& table_of_document) {
  std::map<int64, std::int32_t> table_of_length;
  batch.frequency_tables = 0;
  for (const int64 length : batch.layout.document_lengths()) {
    const int64 key = depends_on_length(spec.rope) ? std::max(length, spec.rope.max_position_embeddings) : 0;
    const auto [entry, inserted] = table_of_length.try_emplace(key, static_cast<std::int32_t>(batch.frequency_tables));
    if (inserted) {
      const RopeFrequencies f = rope_inverse_frequencies(spec.rope, key);
      batch.inverse_frequency.insert(batch.inverse_frequency.end(), f.inv_freq.begin(), f.inv_freq.end());
      batch.attention_factor = f.attention_factor;
      ++batch.frequency_tables;
    }
    table_of_document.push_back(entry->second);
  }
  if (batch.frequency_tables == 0) {  // a micro-batch without documents still has its tables' shape
    const RopeFrequencies f = rope_inverse_frequencies(spec.rope, 0);
    batch.inverse_frequency = f.inv_freq;
    batch.attention_factor = f.attention_factor;
    batch.frequency_tables = 1;
  }
}

LocalBatch make_empty(const Policy& policy, const std::vector<int64>& document_lengths, int64 cp, int64 cp_rank) {
  TokenLayout layout(document_lengths, cp);
  AttentionSchedule schedule = make_attention_schedule(layout, cp_rank, policy.kv_block, policy.exchange);
  return {.layout = std::move(layout), .schedule = std::move(schedule), .cp_rank = cp_rank};
}

}  // namespace

LocalBatch make_local_batch(const ModelSpec& spec, const Policy& policy, const std::vector<int64>& document_lengths,
                            std::span<const std::int32_t> ids, std::span<const std::int32_t> targets, int64 cp,
                            int64 cp_rank) {
  check(ids.size() == targets.size(), "{} ids, {} targets", ids.size(), targets.size());
  LocalBatch batch = make_empty(policy, document_lengths, cp, cp_rank);
  for (auto* array : {&batch.ids, &batch.positions, &batch.frequency_index})
    array->assign(static_cast<std::size_t>(batch.rows()), 0);
  if (spec.experts.count > 0) batch.counted.assign(static_cast<std::size_t>(batch.rows()), 0);
  std::vector<std::int32_t> table_of_document;
  add_frequencies(batch, spec, table_of_document);
  std::vector<int64> document_begin{0};
  for (const int64 length : document_lengths) document_begin.push_back(document_begin.back() + length);
  check(document_begin.back() == static_cast<int64>(ids.size()), "{} tokens in documents of {}", ids.size(),
        document_begin.back());
  for (const Segment& s : batch.layout.segments(cp_rank))
    for (int64 i = 0; i < s.length; ++i) {
      const auto row = static_cast<std::size_t>(s.row + i);
      const int64 position = s.first_position + i;
      const auto token = static_cast<std::size_t>(document_begin[static_cast<std::size_t>(s.document)] + position);
      batch.ids[row] = ids[token];
      if (spec.experts.count > 0) batch.counted[row] = 1;
      batch.positions[row] = static_cast<std::int32_t>(position);
      batch.frequency_index[row] = table_of_document[static_cast<std::size_t>(s.document)];
      if (targets[token] < 0) continue;
      batch.labelled_rows.push_back(static_cast<std::int32_t>(row));
      batch.labels.push_back(targets[token]);
      batch.label_document.push_back(static_cast<std::int32_t>(s.document));
      batch.label_position.push_back(position);
    }
  batch.labelled = static_cast<int64>(batch.labels.size());
  for (auto* result : {&batch.loss, &batch.correct, &batch.entropy}) result->assign(batch.labels.size(), 0);
  return batch;
}

LocalBatch make_planning_batch(const ModelSpec& spec, const Policy& policy, const std::vector<int64>& document_lengths,
                               int64 cp, int64 cp_rank) {
  LocalBatch batch = make_empty(policy, document_lengths, cp, cp_rank);
  std::vector<std::int32_t> table_of_document;
  add_frequencies(batch, spec, table_of_document);
  batch.labelled = batch.rows();
  return batch;
}

}  // namespace megatoken
