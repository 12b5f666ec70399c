#include "train/target.h"

#include <algorithm>

#include "base/byte_text.h"
#include "base/error.h"
#include "device/device.h"
#include "train/machine_rates.h"

namespace megatoken {
namespace {

// Usable memory of an H200 as the driver reports it, and the memory and GPUs of a usual host for it.
constexpr int64 kDescribedDeviceBytes = int64{139} << 30;
constexpr int64 kDescribedHostBytes = 2'000'000'000'000;
constexpr int64 kDescribedRanksPerHost = 8;

bool asks_for_more(const PlannerOptions& options, const Machine& machine, int64 ranks) {
  return options.host_memory.value_or(0) > machine.host_bytes ||
         options.device_memory.value_or(0) > machine.host_bytes / std::max<int64>(ranks, 1);
}

// Whether threads of one process are dealt to this host's GPUs in turn. Ranks that are processes have a GPU each (NCCL
// wants it), and so have those of a plan for more hosts, or for more memory than is here.
bool shares_devices(const RunConfig& config, const Target& target, Purpose purpose, const Company& company,
                    int64 devices) {
  if (purpose == Purpose::rehearse || !company.alone()) return false;
  if (purpose != Purpose::plan) return true;
  const PlannerOptions& asked = config.planner;
  return config.parallel.num_machines == 1 && asked.host_memory.value_or(0) <= target.machine.host_bytes &&
         asked.device_memory.value_or(0) * target.ranks_per_host <= target.machine.device_bytes * devices;
}

}  // namespace

Devices local_devices() {
  return {cuda_device_count(), [](int64 device) { return cuda_usable_bytes(static_cast<int>(device)); }};
}

Target choose_target(const RunConfig& config, int64 ranks, Purpose purpose, const Company& company,
                     const Devices& devices) {
  const bool plan_only = plans_only(purpose);
  Target target;
  target.machine = detect_machine();
  switch (config.model.device) {
    case DeviceChoice::cpu:
      break;
    case DeviceChoice::cuda:
      target.on_cuda = true;
      break;
    case DeviceChoice::automatic:
      target.on_cuda = devices.count > 0 || (plan_only && asks_for_more(config.planner, target.machine, ranks));
      break;
  }
  const int64 machines = config.parallel.num_machines;
  target.ranks_per_host = company.ranks_per_host(ranks, machines);
  if (target.on_cuda && devices.count > 0) {
    target.machine.kind = "cuda";
    // Asking makes a context on the GPU: only where ranks of this process will work.
    const std::vector<int64> local = company.local_ranks(ranks, machines);
    const int64 first = local[static_cast<std::size_t>(company.first_rank())];
    const int64 count = company.alone() ? std::min(devices.count, target.ranks_per_host) : 1;
    target.machine.device_bytes = INT64_MAX;
    for (int64 d = first; d < first + count; ++d)
      target.machine.device_bytes = std::min(target.machine.device_bytes, devices.usable_bytes(d % devices.count));
    if (shares_devices(config, target, purpose, company, devices.count))
      target.ranks_per_device = (target.ranks_per_host + devices.count - 1) / devices.count;
  } else if (target.on_cuda) {
    if (!plan_only) throw FitError("device: cuda was asked for, and there is no CUDA device");
    target.here = false;
    target.machine.kind = "H200";
    target.machine.device_bytes = kDescribedDeviceBytes;
    target.machine.host_bytes = kDescribedHostBytes;
    if (machines == 1) target.ranks_per_host = std::min(ranks, kDescribedRanksPerHost);
  }
  target.machine = company.agree_on_machine(target.machine, target.ranks_per_host);
  const int64 cores = target.machine.cores / std::max<int64>(target.ranks_per_host, 1);
  target.rates = default_rates(target.on_cuda, cores);
  // Every process of a job must come to the same plan: several share the default rates.
  if (target.here && machines == 1 && company.alone())
    if (const auto measured = cached_rates(target.on_cuda, cores)) target.rates = *measured;
  return target;
}

std::string describe(const Target& target) {
  if (!target.on_cuda)
    return fmt::format("cpu, {:.1f} GiB, {} cores", gib(target.machine.host_bytes), target.machine.cores);
  const std::string shared = target.ranks_per_device > 1 ? fmt::format(" for {} ranks", target.ranks_per_device) : "";
  return fmt::format("{} with {:.1f} GiB{}, {} ranks a host of {:.1f} GiB{}", target.machine.kind,
                     gib(target.machine.device_bytes), shared, target.ranks_per_host, gib(target.machine.host_bytes),
                     target.here ? "" : " (described: not this machine)");
}

}  // namespace megatoken
