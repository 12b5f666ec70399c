#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "cli/cli.h"
#include "train/job.h"
#include "train/summary.h"

namespace megatoken {
namespace {

Job plan_job(const RunConfig& config) { return make_job(config, Purpose::plan, config.parallel.num_processes.value_or(1)); }

int64 ranks_per_host(const Job& job) {
  const int64 hosts = job.config.parallel.num_machines;
  return (job.mesh.size() + hosts - 1) / hosts;
}

nlohmann::ordered_json json_of(const Job& job) {
  const PlannedRun& plan = job.plan;
  nlohmann::ordered_json out;
  out["fits"] = plan.fits();
  out["device_peak_bytes"] = plan.device_bytes();
  out["host_peak_bytes"] = plan.host_bytes() * ranks_per_host(job);
  out["step_time_s"] = plan.step_time_s;
  out["levers"] = nlohmann::ordered_json::array();
  for (const Lever& lever : plan.levers)
    out["levers"].push_back(
        {{"name", lever.name}, {"reason", lever.reason}, {"saves_bytes", lever.saves_bytes}, {"costs_s", lever.costs_s}});
  out["buffers"] = nlohmann::ordered_json::array();
  for (const PlannedBuffer& b : plan.buffers)
    out["buffers"].push_back({{"name", b.name}, {"place", b.place == Place::device ? "device" : "host"}, {"bytes", b.bytes}});
  out["mesh"] = {{"num_processes", job.mesh.size()}, {"dp_replicate", job.mesh.dp_replicate},
                 {"dp_shard", job.mesh.dp_shard},    {"cp", job.mesh.cp}};
  out["max_length"] = job.config.data.max_length.value_or(0);
  return out;
}

// The largest value in [1, most] for which fits(value) holds; 0 when it holds for none. fits is monotone.
template <typename Fits>
int64 largest(int64 most, const Fits& fits) {
  int64 good = 0, bad = most + 1;
  for (int64 probe = 1; probe <= most; probe *= 2) {
    if (!fits(probe)) {
      bad = probe;
      break;
    }
    good = probe;
  }
  while (bad - good > std::max<int64>(1, good / 1024)) {
    const int64 middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

// Longer rows on the same ranks: to within 0.1 %.
void find_max_length(RunConfig& config) {
  constexpr int64 kLongest = int64{1} << 28;
  const int64 found = largest(kLongest, [&](int64 length) {
    config.data.max_length = length;
    return plan_job(config).plan.fits();
  });
  if (found == 0) throw FitError("not even one token fits; use more ranks or a larger budget");
  config.data.max_length = found;
}

// Fewest ranks, all of them added to context parallelism unless cp_size is given.
void find_num_processes(RunConfig& config) {
  constexpr int64 kMost = 4096;
  const bool grow_cp = !config.parallel.cp && !config.parallel.dp_shard;
  for (int64 ranks = 1; ranks <= kMost; ranks *= 2) {
    config.parallel.num_processes = ranks;
    if (grow_cp) config.parallel.cp = ranks;
    if (plan_job(config).plan.fits()) return;
  }
  throw FitError("num_processes: not even {} ranks are enough", kMost);
}

}  // namespace

int run_plan(const Invocation& invocation) {
  RunConfig config = read_config(invocation);
  if (!invocation.json) print_notices(config);
  if (invocation.find == "max_length") find_max_length(config);
  if (invocation.find == "num_processes") find_num_processes(config);
  const Job job = plan_job(config);
  if (invocation.json) {
    log_info("{}", json_of(job).dump());
    return job.plan.fits() ? 0 : static_cast<int>(ExitCode::does_not_fit);
  }
  log_info("{}: {} parameters; {} ranks = dp_replicate {} x dp_shard {} x cp {}; max_length {}", job.model_dir,
           count_parameters(job.model), job.mesh.size(), job.mesh.dp_replicate, job.mesh.dp_shard, job.mesh.cp,
           job.config.data.max_length.value_or(0));
  log_info("{}", plan_table(job.plan));
  require_fit(job.plan, job.mesh);
  log_info("fits");
  return 0;
}

}  // namespace megatoken
