// One rank's tokens of a micro-batch as host arrays, in the row order of its TokenLayout. Labels were shifted and
// positions assigned on the whole documents before anything was cut.
#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "schedule/attention_schedule.h"
#include "schedule/token_layout.h"
#include "spec/model_spec.h"
#include "spec/policy.h"

namespace megatoken {

struct LocalBatch {
  TokenLayout layout;
  AttentionSchedule schedule;
  int64 cp_rank = 0;
  std::vector<std::int32_t> ids, positions, frequency_index;  // [rows]
  std::vector<float> inverse_frequency;                       // [tables, head_dim / 2]
  int64 frequency_tables = 1;
  float attention_factor = 1;
  int64 labelled = 0;                               // n: rows with a target
  std::vector<std::int32_t> labelled_rows, labels;  // [n]
  std::vector<std::int32_t> label_document;         // [n] document and position of each labelled row
  std::vector<int64> label_position;
  std::vector<std::uint8_t> counted;  // [rows] of models with experts: 1 for a token, 0 for padding
  // Of the load-balancing loss in the gradient of the sum of losses: its weight times what that sum is divided by.
  double balance_scale = 0;
  float aux_loss = 0;  // written by a training step with that loss, the same on all ranks of the sequence
  // Written by the step: float32 per labelled row, see ops/cross_entropy.h.
  std::vector<float> loss, correct, entropy;

  int64 rows() const { return layout.rows(); }
  int64 tokens() const { return std::accumulate(layout.document_lengths().begin(), layout.document_lengths().end(), int64{0}); }
};

// ids, targets: tokens of all documents one behind the other, as given by document_lengths; a target of -100 is none.
LocalBatch make_local_batch(const ModelSpec& spec, const Policy& policy, const std::vector<int64>& document_lengths,
                            std::span<const std::int32_t> ids, std::span<const std::int32_t> targets, int64 cp,
                            int64 cp_rank);
// Shapes of the largest micro-batch for planning: every token labelled, all arrays but the frequencies empty.
LocalBatch make_planning_batch(const ModelSpec& spec, const Policy& policy, const std::vector<int64>& document_lengths,
                               int64 cp, int64 cp_rank);

}  // namespace megatoken
