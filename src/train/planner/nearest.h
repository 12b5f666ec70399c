// What would fit where something doesn't, and how far a configuration goes.
#pragma once

#include <functional>
#include <string>

#include "train/planned_run.h"

namespace megatoken {

// The largest n in [1, most] with fits(n), to within 1/precision of it (exact below precision); 0 when there is none.
// fits must be monotone: what holds for n holds for less.
int64 largest_fit(int64 most, int64 precision, const std::function<bool(int64)>& fits);

// The longest documents of the largest micro-batch (all equally long) that fit, to within 1/precision; 0: none.
int64 longest_fit(RunShape shape, const PlannerOptions& options, const ParallelOptions& parallel,
                  const PlanBudget& budget, const MachineRates& rates, int64 precision);

// Whether the ranks could train on rows of one token: false when they can't on longer ones. Quickly told for any mesh.
bool state_fits(const RunShape& shape, const PlannerOptions& options, const ParallelOptions& parallel,
                const PlanBudget& budget, const MachineRates& rates);

// "max_length 98304 fits here; so do 16 ranks": for the end of an error line.
std::string nearest_fit(const RunShape& shape, const PlannerOptions& options, const ParallelOptions& parallel,
                        const PlanBudget& budget, const MachineRates& rates);

}  // namespace megatoken
