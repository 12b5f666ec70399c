// The machine that a run is planned for: this one, or, for plans alone, one that is described.
#pragma once

#include <functional>
#include <string>

#include "plan/price.h"
#include "spec/machine.h"
#include "spec/run_config.h"
#include "train/company.h"

namespace megatoken {

// What the job is for: planning and rehearsing read config.json alone. A rehearsal is of ranks with a GPU each.
enum class Purpose { train, evaluate, plan, rehearse };
constexpr bool plans_only(Purpose purpose) { return purpose == Purpose::plan || purpose == Purpose::rehearse; }

// This machine's GPUs.
struct Devices {
  int64 count = 0;
  std::function<int64(int64)> usable_bytes;  // of one of them
};
Devices local_devices();

struct Target {
  Machine machine;
  bool on_cuda = false;
  bool here = true;  // false: no such GPU is in this machine
  int64 ranks_per_host = 1;
  int64 ranks_per_device = 1;  // threads of one process that share a GPU
  MachineRates rates;
};

// device: auto is this machine's GPU where it has one, else its CPU. Planning alone, budgets that this machine does not
// have (host_memory, or device_memory of all ranks, above its memory) mean GPUs elsewhere, one a rank; else a plan is
// of what training would do here: threads share the GPUs where there are fewer than ranks. A GPU that is not here is an
// H200 in hosts of 8 with 2 TB, unless device_memory, host_memory or num_machines say otherwise. Rates are those that
// doctor --measure kept for this machine, or defaults. FitError when a GPU is needed to run and there is none.
Target choose_target(const RunConfig& config, int64 ranks, Purpose purpose, const Company& company,
                     const Devices& devices = local_devices());

// "cpu, 23.4 GiB" or "H200, 139.0 GiB; 8 ranks a host with 1862.6 GiB (described: not this machine)".
std::string describe(const Target& target);

}  // namespace megatoken
