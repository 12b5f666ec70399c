// How fast a machine is, for pricing plans.
#pragma once

#include "plan/price.h"

namespace megatoken {

// Sustained rates: one H200's (docs/benchmarks.md), or this many cores'.
MachineRates default_rates(bool on_cuda, int64 cores_per_rank);

}  // namespace megatoken
