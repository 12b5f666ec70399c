#include "train/planned_run.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "train/planner/levers.h"
#include "train/planner/search.h"

namespace megatoken {
namespace {

void list_buffers(PlannedRun& planned, const ShardedParameters& state, int64 host_fixed) {
  for (const auto& s : state.storage())
    if (s.bytes > 0) planned.buffers.push_back({s.name, s.place, s.bytes});
  planned.buffers.push_back({"program, libraries and scratch", Place::host, host_fixed});
  if (planned.fixed_bytes > 0) planned.buffers.push_back({"CUDA context and libraries", Place::device, planned.fixed_bytes});
  for (const Plan* plan : {&planned.train_plan, &planned.evaluation_plan, &planned.update_plan})
    for (const PlannedSite& site : plan->sites()) planned.buffers.push_back({site.name, site.place, site.bytes});
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
  constexpr int kAttempts = 5;
  PlannedRun planned;
  Choice choice;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto best = search.best(allowed);
    choice = best ? best->choice : search.least();
    planned = realize(counts, choice, budget);
    if (planned.fits() || !best) break;
    const auto over = [](int64 bytes, int64 most) { return std::max<int64>(0, bytes - most); };
    if (budget.shared) {
      allowed[1] -= over(planned.device_bytes() + planned.host_bytes(), budget.host_bytes);
    } else {
      allowed[0] -= over(planned.device_bytes(), budget.device_bytes);
      allowed[1] -= over(planned.host_bytes(), budget.host_bytes);
    }
  }
  planned.levers = explain_levers(search, choice, budget);
  planned.counted = counts.counted();
  list_buffers(planned, counts.parameters(choice.places), planned.host_fixed_bytes);
  return planned;
}

void require_fit(const PlannedRun& plan, const Mesh& mesh) {
  if (plan.fits()) return;
  const auto gib = [](int64 bytes) { return static_cast<double>(bytes) / static_cast<double>(int64{1} << 30); };
  const PlannedBuffer& largest = plan.buffers.front();
  throw FitError(
      "does not fit: {:.2f} GiB on the device and {:.2f} GiB on the host are needed, {:.2f} and {:.2f} GiB are there; the "
      "largest buffer is \"{}\" ({:.2f} GiB); use more ranks (num_processes, now {}), a smaller max_length or a larger budget",
      gib(plan.device_bytes()), gib(plan.host_bytes()), gib(plan.budget.device_bytes), gib(plan.budget.host_bytes),
      largest.name, gib(largest.bytes), mesh.size());
}

}  // namespace megatoken
