// How fast a machine is, for pricing plans.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/price.h"

namespace megatoken {

// Sustained rates: one H200's (docs/benchmarks.md), or this many cores'.
MachineRates default_rates(bool on_cuda, int64 cores_per_rank);

// Rates as `megatoken doctor --measure` left them for this machine's GPU or CPU, in the user's cache directory
// ($XDG_CACHE_HOME or ~/.cache, megatoken/rates-cuda.json or rates-cpu.json): those of all cores, scaled. Nothing when
// none were measured, or the file is not whole.
std::optional<MachineRates> cached_rates(bool on_cuda, int64 cores_per_rank);
// Measures products, attention, copies and memory on this machine's first GPU or on `cores` of its CPU, some seconds
// each, and keeps them. The exchange between ranks is not measured: its rate is the default's. FitError without that
// device.
MachineRates measure_rates(bool on_cuda, int64 cores);
std::string rates_file(bool on_cuda);
// A line a rate, with its unit.
std::vector<std::string> describe(const MachineRates& rates);

}  // namespace megatoken
