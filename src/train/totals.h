// Sums over labelled tokens, the one convention of train, evaluation and logs: every rank adds its own tokens, the sums
// are reduced over all ranks, and only then divided by the global count.
#pragma once

#include <array>
#include <string>

#include "comm/group.h"
#include "model/local_batch.h"

namespace megatoken {

inline constexpr int kPositionParts = 8;

struct Totals {
  double loss = 0, correct = 0, entropy = 0, targets = 0, tokens = 0;
  double aux_loss = 0, aux_batches = 0;  // the experts' load-balancing loss, summed over micro-batches that have tokens
  std::array<double, kPositionParts> part_loss{}, part_targets{};  // by equal parts of each document
  std::string first_non_finite;  // of this rank: which token's loss, in words; empty: none

  void add(const LocalBatch& batch);
  // Sums over the group; every rank gets the same.
  void reduce(Group& group);

  double mean_loss() const { return loss / targets; }
  double mean_aux_loss() const { return aux_batches == 0 ? 0 : aux_loss / aux_batches; }
};

}  // namespace megatoken
