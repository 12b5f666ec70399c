#include "train/planned_run.h"

#include <algorithm>
#include <utility>

#include "base/byte_text.h"
#include "base/error.h"
#include "train/planner/levers.h"
#include "train/planner/search.h"

namespace megatoken {
namespace {

void list_buffers(PlannedRun& planned, const ShardedParameters& state, int64 host_fixed) {
  for (const auto& s : state.storage())
    if (s.bytes > 0) planned.buffers.push_back({s.name, s.place, s.bytes, true});
  planned.buffers.push_back({"program, libraries and scratch", Place::host, host_fixed, true});
  if (planned.fixed_bytes > 0)
    planned.buffers.push_back({"CUDA context and libraries", Place::device, planned.fixed_bytes, true});
  for (const Plan* plan : {&planned.train_plan, &planned.evaluation_plan, &planned.update_plan})
    for (const PlannedSite& site : plan->sites()) planned.buffers.push_back({site.name, site.place, site.bytes, false});
  std::stable_sort(planned.buffers.begin(), planned.buffers.end(),
                   [](const PlannedBuffer& a, const PlannedBuffer& b) { return a.bytes > b.bytes; });
}

// Counts and packs a choice.
PlannedRun realize(StepCounts& counts, const Choice& choice, const PlanBudget& budget) {
  CountedChoice counted = counts.count(choice);
  const ShardedParameters& state = counts.parameters(choice.places);
  PlannedRun planned;
  planned.policy = choice.policy;
  planned.places = choice.places;
  planned.budget = budget;
  planned.train = std::move(counted.train);
  planned.evaluation = std::move(counted.evaluation);
  planned.update = *counted.update;
  planned.train_plan = pack(planned.train);
  planned.evaluation_plan = pack(planned.evaluation);
  planned.update_plan = pack(planned.update);
  planned.arena = arena_for({&planned.train_plan, &planned.evaluation_plan, &planned.update_plan});
  planned.state_bytes = state.storage_bytes(Place::device);
  planned.host_state_bytes = state.storage_bytes(Place::host);
  planned.fixed_bytes = counted.fixed[static_cast<std::size_t>(Place::device)] - planned.state_bytes;
  planned.host_fixed_bytes = counted.fixed[static_cast<std::size_t>(Place::host)] - planned.host_state_bytes;
  planned.train_price = counted.train_price;
  planned.step_time_s = counted.step_time_s;
  return planned;
}

}  // namespace

bool PlannedRun::fits() const {
  if (budget.shared) return device_bytes() + host_bytes() <= budget.host_bytes;
  return device_bytes() <= budget.device_bytes && host_bytes() <= budget.host_bytes;
}

PlanBudget budget_of(const PlannerOptions& options, const Machine& machine, int64 ranks_per_host, bool on_cuda,
                     int64 ranks_per_device) {
  PlanBudget budget;
  budget.shared = !on_cuda;
  budget.host_bytes = options.host_memory.value_or(machine.host_bytes) / std::max<int64>(ranks_per_host, 1);
  budget.device_bytes = options.device_memory.value_or(machine.device_bytes) / std::max<int64>(ranks_per_device, 1);
  if (!on_cuda && options.device_memory) budget.host_bytes = std::min(budget.host_bytes, *options.device_memory);
  return budget;
}

PlannedRun plan_run(const RunShape& shape, const PlannerOptions& options, const ParallelOptions& parallel,
                    const PlanBudget& budget, const MachineRates& rates) {
  StepCounts counts(shape, rates);
  PolicySearch search(counts, options, parallel, budget.shared);
  // The search compares live bytes; what packing adds to them is taken off the budget, and the search is repeated.
  PlaceBytes allowed{budget.device_bytes, budget.host_bytes};
  PlaceBytes added{};
  constexpr int kAttempts = 6;
  PlannedRun planned;
  Choice choice;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto best = attempt == 0 ? search.best(allowed) : search.again(choice, allowed);
    choice = best ? best->choice : search.least();
    planned = realize(counts, choice, budget);
    if (planned.fits() || !best) break;
    const PlaceBytes packed{planned.device_bytes(), planned.host_bytes()};
    for (std::size_t p = 0; p < added.size(); ++p) added[p] = std::max(added[p], packed[p] - best->bytes[p]);
    allowed = {budget.device_bytes - added[0], budget.host_bytes - added[1] - (budget.shared ? added[0] : 0)};
  }
  planned.levers = explain_levers(search, choice, budget);
  planned.counted = counts.counted();
  list_buffers(planned, counts.parameters(choice.places), planned.host_fixed_bytes);
  return planned;
}

PlannedRun plan_policy(const RunShape& shape, const Policy& policy, const StatePlaces& places, const PlanBudget& budget,
                       const MachineRates& rates) {
  StepCounts counts(shape, rates);
  PlannedRun planned = realize(counts, {policy, places}, budget);
  list_buffers(planned, counts.parameters(places), planned.host_fixed_bytes);
  return planned;
}

namespace {

// The largest of what lives at the peak of the place that is short.
PlannedBuffer largest_at_peak(const PlannedRun& plan, Place place) {
  PlannedBuffer largest;
  for (const PlannedBuffer& b : plan.buffers)
    if (b.place == place && b.bytes > largest.bytes && b.persistent) largest = b;
  const CountedStep* const steps[] = {&plan.train, &plan.evaluation, &plan.update};
  const CountedStep& step = **std::max_element(
      std::begin(steps), std::end(steps),
      [&](const CountedStep* a, const CountedStep* b) { return a->live_bytes(place) < b->live_bytes(place); });
  for (const PeakSite& site : sites_at_peak(step, place))
    if (site.bytes > largest.bytes) largest = {site.name, place, site.bytes, false};
  return largest;
}

}  // namespace

void require_fit(const PlannedRun& plan, const std::function<std::string()>& nearest) {
  if (plan.fits()) return;
  const bool host = !plan.budget.shared && plan.device_bytes() <= plan.budget.device_bytes;
  const PlannedBuffer largest = largest_at_peak(plan, host ? Place::host : Place::device);
  const std::string needed =
      plan.budget.shared ? fmt::format("a rank needs {:.3f} GiB and has {:.3f}",
                                       gib(plan.device_bytes() + plan.host_bytes()), gib(plan.budget.host_bytes))
                         : fmt::format(
                               "with every lever a rank needs {:.2f} GiB on the device and {:.2f} GiB on the host, "
                               "{:.2f} and {:.2f} GiB are there",
                               gib(plan.device_bytes()), gib(plan.host_bytes()), gib(plan.budget.device_bytes),
                               gib(plan.budget.host_bytes));
  throw FitError("does not fit: {}; the largest buffer is '{}' ({:.3f} GiB); {}", needed, largest.name,
                 gib(largest.bytes), nearest());
}

}  // namespace megatoken
