// The programs of a step, counted for one choice of policy and places. Nothing is packed here: what a program needs at
// least is its live bytes, and that is what the search compares.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>

#include "model/local_batch.h"
#include "plan/price.h"
#include "train/planned_run.h"

namespace megatoken {

// What the planner decides.
struct Choice {
  Policy policy;
  StatePlaces places;

  bool operator==(const Choice&) const = default;
};

// A choice, its programs, what they take beside the arena, and how long a step is.
struct CountedChoice {
  Choice choice;
  CountedStep train, evaluation;
  const CountedStep* update = nullptr;  // of the StepCounts that made this
  StepPrice train_price;                // of one micro-batch
  double step_time_s = 0;               // of an optimizer step
  PlaceBytes live{};                    // the largest program's
  PlaceBytes fixed{};                   // state, libraries, scratch

  // What no packing goes below.
  int64 bytes(Place place) const {
    return live[static_cast<std::size_t>(place)] + fixed[static_cast<std::size_t>(place)];
  }
};

// False when one of the step's buffers would have more bytes than any machine has (2^44).
bool countable(const RunShape& shape);

class StepCounts {
 public:
  // FitError when the shape is not countable.
  StepCounts(const RunShape& shape, const MachineRates& rates);

  // After prepare() of the same choice it may be called by several threads.
  CountedChoice count(const Choice& choice);
  void prepare(const Choice& choice);

  // Bytes of one layer's input, and of its attention output with log-sum-exp, while they wait for backward.
  int64 input_bytes() const { return input_bytes_; }
  int64 output_bytes() const { return output_bytes_; }
  const ShardedParameters& parameters(const StatePlaces& places) { return state(places).parameters; }
  // State, libraries, scratch.
  const PlaceBytes& fixed_bytes(const StatePlaces& places) { return state(places).fixed; }
  const CountedStep& update(const StatePlaces& places) { return state(places).update; }
  double update_s(const StatePlaces& places) { return state(places).update_s; }
  const RunShape& shape() const { return shape_; }
  int64 counted() const { return counted_.load(); }

 private:
  // What depends on the places alone.
  struct State {
    StatePlaces places;
    ShardedParameters parameters;
    PlaceBytes fixed{};
    CountedStep update;
    double update_s = 0;
  };
  const State& state(const StatePlaces& places);
  LocalBatch& batch(const std::vector<int64>& documents, const Policy& policy);

  const RunShape& shape_;
  const MachineRates& rates_;
  std::vector<BucketSpec> buckets_;
  int64 input_bytes_ = 0, output_bytes_ = 0;
  std::deque<State> states_;
  std::map<std::tuple<bool, int64, KvExchange>, std::unique_ptr<LocalBatch>> batches_;
  std::atomic<int64> counted_{0};
};

}  // namespace megatoken
