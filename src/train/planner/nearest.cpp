#include "train/planner/nearest.h"

#include <algorithm>

#include "train/planner/search.h"

namespace megatoken {
namespace {

constexpr int64 kLongest = int64{1} << 28;
constexpr int64 kMostRanks = 4096;

// By live bytes first, which costs least; packing decides.
bool fits(const RunShape& shape, const PlannerOptions& options, const ParallelOptions& parallel,
          const PlanBudget& budget, const MachineRates& rates) {
  if (!countable(shape)) return false;
  StepCounts counts(shape, rates);
  PolicySearch search(counts, options, parallel, budget.shared);
  if (!search.best({budget.device_bytes, budget.host_bytes})) return false;
  return plan_run(shape, options, parallel, budget, rates).fits();
}

// The same ranks with next to no tokens and nothing to exchange: less than any job of theirs takes, and quickly
// counted.
RunShape state_alone(RunShape shape) {
  shape.mesh.dp_shard *= shape.mesh.cp;
  shape.mesh.cp = 1;
  for (auto* documents : {&shape.train_documents, &shape.eval_documents})
    std::fill(documents->begin(), documents->end(), int64{1});
  return shape;
}

}  // namespace

bool state_fits(const RunShape& shape, const PlannerOptions& options, const ParallelOptions& parallel,
                const PlanBudget& budget, const MachineRates& rates) {
  return fits(state_alone(shape), options, parallel, budget, rates);
}

int64 largest_fit(int64 most, int64 precision, const std::function<bool(int64)>& fits) {
  int64 good = 0, bad = most + 1;
  for (int64 probe = 1; probe <= most; probe *= 2) {
    if (!fits(probe)) {
      bad = probe;
      break;
    }
    good = probe;
  }
  while (bad - good > std::max<int64>(1, good / precision)) {
    const int64 middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

int64 longest_fit(RunShape shape, const PlannerOptions& options, const ParallelOptions& parallel,
                  const PlanBudget& budget, const MachineRates& rates, int64 precision) {
  return largest_fit(kLongest, precision, [&](int64 length) {
    for (auto* documents : {&shape.train_documents, &shape.eval_documents})
      std::fill(documents->begin(), documents->end(), length);
    return fits(shape, options, parallel, budget, rates);
  });
}

std::string nearest_fit(const RunShape& shape, const PlannerOptions& options, const ParallelOptions& parallel,
                        const PlanBudget& budget, const MachineRates& rates) {
  constexpr int64 kPrecision = 16;
  const int64 length = longest_fit(shape, options, parallel, budget, rates, kPrecision);
  RunShape more = shape;
  int64 ranks = 0;
  for (int64 times = 2; ranks == 0 && times * shape.mesh.size() <= kMostRanks; times *= 2) {
    more.mesh.cp = times * shape.mesh.cp;
    if (state_fits(more, options, parallel, budget, rates) && fits(more, options, parallel, budget, rates))
      ranks = more.mesh.size();
  }
  const std::string by_ranks =
      ranks > 0 ? fmt::format("with the same memory a rank, num_processes {} (cp_size {}) fits", ranks, more.mesh.cp)
                : "";
  if (length > 0 && ranks > 0) return fmt::format("max_length {} fits here; {}", length, by_ranks);
  if (length > 0) return fmt::format("max_length {} fits here", length);
  if (ranks > 0) return fmt::format("no max_length fits here; {}", by_ranks);
  return "no max_length fits and more ranks don't help: the budget is too small for this model";
}

}  // namespace megatoken
