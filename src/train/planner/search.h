// The choice with the least predicted time among those that stay inside a budget.
//
// What a step takes is nearly a sum: state by its places, one piece a layer for what waits between forward and
// backward, and the working set of one layer, which tiles, head groups, exchange and prefetch decide. So only working
// sets are counted one by one; how many layers wait on the device, on the host or nowhere follows from the bytes left,
// and is counted once more to be exact. Candidates (working set, places of state) are visited in the order of a bound
// that no placement of their layers goes below: compute and exchange with everything on the device, the update, and the
// recomputing of what fits nowhere. The bound is sharpened by counting only when it is the least; the search ends when
// the least bound is no faster than the best that was found.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <unordered_map>

#include "train/planner/step_counts.h"

namespace megatoken {

// What the search knows of a choice.
struct ChoiceSize {
  Choice choice;
  PlaceBytes bytes{};  // live and fixed: no packing takes less
  double step_time_s = 0;
  double exposed_s = 0;  // of it: compute waits for transfers and exchanges
};

class PolicySearch {
 public:
  // Throws ConfigError when a pin can't be met by the model.
  PolicySearch(StepCounts& counts, const PlannerOptions& options, const ParallelOptions& parallel, bool shared);

  // Nothing engaged but the pins.
  const Choice& initial() const { return initial_; }
  // Every lever engaged: what takes least on the device.
  Choice least() const;
  // The fastest choice whose bytes stay inside; nothing when there is none.
  std::optional<ChoiceSize> best(const PlaceBytes& budget);
  // The same for a budget a little below the one that `last` was the best for: its working set first.
  std::optional<ChoiceSize> again(const Choice& last, const PlaceBytes& budget);
  ChoiceSize size(const Choice& choice);
  // Counts what size() will be asked for, on several threads.
  void count_ahead(const std::vector<Choice>& choices);
  bool inside(const PlaceBytes& bytes, const PlaceBytes& budget) const;

 private:
  struct Tiles {
    int64 token = 0, loss = 0, kv_block = 0;
  };
  struct Working {  // a working set
    int64 groups = 1;
    std::size_t tiles = 0;
    KvExchange exchange = KvExchange::allgather;
    int64 prefetch = 1;
  };
  // How many layers wait where: the first ones on the device, then on the host, then recomputed.
  struct Layers {
    int64 device = 0, host = 0, again = 0;
  };

  // What is remembered of the counted programs of a policy.
  struct Program {
    PlaceBytes live{};
    int64 without_tiles = 0;                // of the device's: of buffers that tiles don't size
    double train_s = 0;                     // of a micro-batch
    double exposed_s = 0, transfers_s = 0;  // of it: compute waits; for the host alone
  };
  // Seconds of a step that a byte costs when it doesn't wait: of layer inputs, and what is more when attention outputs
  // are fetched from the host meanwhile; of attention outputs.
  struct RecomputeRates {
    double inputs = std::numeric_limits<double>::infinity(), inputs_fetching = 0;
    double outputs = std::numeric_limits<double>::infinity();
  };
  // A working set and places for state, on its way through the search.
  struct Candidate {
    double bound_s = 0;    // no placement of its layers is faster
    std::size_t turn = 0;  // among equal bounds the plainest first
    Working working;
    const StatePlaces* places = nullptr;
    enum class Known { nothing, working_set, all };
    Known known = Known::nothing;  // what the bound was counted from
    struct Larger {                // the same with larger tiles, once it was placed
      double placed_s = 0, least_s = 0;
      double byte_s = 0;  // of what was missing
      int64 live = 0;
    } larger;
  };

  Choice with(const Working& working, const StatePlaces& places) const;
  Choice with(Choice choice, const Layers& inputs, const Layers& outputs) const;
  Layers all_waiting() const { return shared_ ? Layers{layers_, 0, 0} : Layers{0, layers_, 0}; }
  const Program& program(const Choice& choice);
  Program measure(const Choice& choice);
  double steps() const { return static_cast<double>(counts_.shape().micro_batches); }
  // Of a step's micro-batches: compute, and waiting for exchanges, with everything on the device.
  double least_s(const Working& working);
  const RecomputeRates& recompute_rates(const Choice& base);
  // What no placement of its layers goes below. whole: with everything waiting. spared: bytes that it may do without.
  double bound_s(const Working& working, const StatePlaces& places, const ChoiceSize& whole, const PlaceBytes& budget,
                 int64 spared);
  // False when the device, or everything where it is shared, has not even room for this with nothing kept on it.
  bool may_fit(const Working& working, const StatePlaces& places, const PlaceBytes& budget);
  // The fastest placement of layers for a working set and places. Whatever waits on the host stays there while its
  // transfers are hidden and the host has room.
  std::optional<ChoiceSize> place(const Choice& base, const PlaceBytes& budget);
  // As many layers on the device as there is room for: attention outputs first.
  std::optional<ChoiceSize> fill_device(const Choice& base, Layers& inputs, Layers& outputs, const PlaceBytes& budget);
  // As few layers recomputed as are needed.
  std::optional<ChoiceSize> recompute(const Choice& base, Layers inputs, Layers outputs, int64 segment,
                                      const PlaceBytes& budget);
  bool hidden(const ChoiceSize& size) const;
  // Bytes that fit nowhere.
  double must_recompute(const ChoiceSize& waiting, const PlaceBytes& budget) const;
  ChoiceSize settle(const ChoiceSize& found, const PlaceBytes& budget);
  // Takes back what turned out not to be needed, one lever at a time.
  ChoiceSize relax(ChoiceSize best, const PlaceBytes& budget);

  StepCounts& counts_;
  const PlannerOptions& options_;
  bool shared_;
  int64 layers_;
  Choice initial_;
  std::vector<int64> groups_;
  std::vector<Tiles> tiles_;
  std::vector<KvExchange> exchanges_;
  std::vector<int64> prefetches_;
  std::vector<StatePlaces> places_;
  std::unordered_map<std::string, Program> known_;
  std::optional<RecomputeRates> recompute_rates_;
};

}  // namespace megatoken
