// Which rows each optimizer step, micro-step and data-parallel rank takes, and where to go on after a stop.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace megatoken {

enum class RowOrder { random, sequential };  // train_sampling_strategy

struct SamplerOptions {
  int64 rows = 0;  // of the dataset, at least 1
  RowOrder order = RowOrder::random;
  bool shuffle_dataset = false;  // one permutation before everything, the same in every epoch
  std::uint64_t seed = 42;       // data_seed, or seed
  int64 batch = 1;               // rows per rank and micro-step
  int64 accumulation = 1;        // micro-steps per optimizer step
  int64 dp = 1;                  // ranks that see different data: dp_replicate x dp_shard
};

// The rows of one optimizer step: a window of batch x accumulation x dp rows of the epoch's order, fewer at its end.
// Micro-step a on rank d has rows [(a x dp + d) x batch, + batch) of the window, so the rows of a step are the same for
// every way of sharing them out.
struct StepRows {
  int64 epoch = 0;
  std::vector<int64> rows;
  int64 batch = 1, dp = 1;

  int64 micro_steps() const;                                                  // the same on every rank
  std::span<const int64> micro_batch(int64 micro_step, int64 dp_rank) const;  // may be short or empty at an epoch's end
};

// The order is a function of seed and epoch alone: not of ranks, batch sizes or where a run was interrupted.
class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);

  // Rows of the next optimizer step. A window never spans two epochs; the last short one of an epoch isn't dropped.
  StepRows next();

  int64 steps_per_epoch() const;
  // transformers' max_steps for num_train_epochs: ceil(epochs x steps_per_epoch).
  int64 total_steps(double epochs) const;
  // Epochs done as transformers counts them: whole ones and the share of this one's micro-steps.
  double epoch() const;

  // Where the sampler stands, after any number of steps, at an epoch's border too. The batch, accumulation and dp may
  // be others when it is restored; rows, seed and order may not: ConfigError naming what differs. `where` (the file)
  // begins every message; FileError for a malformed state.
  nlohmann::json state() const;
  void restore(const nlohmann::json& state, const std::string& where);

 private:
  void order_epoch();

  SamplerOptions options_;
  std::vector<std::uint32_t> base_, order_;  // permutations; empty: the identity
  int64 ordered_epoch_ = -1;
  int64 epoch_ = 0;
  int64 position_ = 0;  // rows of this epoch taken, below options_.rows
};

}  // namespace megatoken
