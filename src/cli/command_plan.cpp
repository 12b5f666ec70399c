#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "cli/cli.h"
#include "train/job.h"
#include "train/planner/nearest.h"
#include "train/summary.h"

namespace megatoken {
namespace {

Job plan_job(const RunConfig& config) {
  return make_job(config, Purpose::plan, config.parallel.num_processes.value_or(1));
}

nlohmann::ordered_json json_of(const Job& job) {
  const PlannedRun& plan = job.plan;
  nlohmann::ordered_json out;
  out["fits"] = plan.fits();
  out["device_peak_bytes"] = plan.device_bytes();
  out["host_peak_bytes"] = plan.host_bytes() * job.target.ranks_per_host;
  out["step_time_s"] = plan.step_time_s;
  out["levers"] = nlohmann::ordered_json::array();
  for (const Lever& lever : plan.levers)
    out["levers"].push_back({{"name", lever.name},
                             {"reason", lever.reason},
                             {"saves_bytes", lever.saves_bytes},
                             {"costs_s", lever.costs_s}});
  out["buffers"] = nlohmann::ordered_json::array();
  for (const PlannedBuffer& b : plan.buffers)
    out["buffers"].push_back(
        {{"name", b.name}, {"place", b.place == Place::device ? "device" : "host"}, {"bytes", b.bytes}});
  out["mesh"] = {{"num_processes", job.mesh.size()},
                 {"dp_replicate", job.mesh.dp_replicate},
                 {"dp_shard", job.mesh.dp_shard},
                 {"cp", job.mesh.cp}};
  out["max_length"] = job.config.data.max_length.value_or(0);
  return out;
}

// Longer rows on the same ranks: to within 0.1 %.
void find_max_length(RunConfig& config) {
  constexpr int64 kPrecision = 1024;
  config.data.max_length = 1;
  const Job job = plan_job(config);
  const int64 found =
      longest_fit(job.shape, config.planner, config.parallel, job.plan.budget, job.target.rates, kPrecision);
  if (found == 0) throw FitError("max_length: not even one token fits; use more ranks or a larger budget");
  config.data.max_length = found;
}

// Fewest ranks, doubled from 1, all of them added to context parallelism unless the mesh is given.
void find_num_processes(RunConfig& config) {
  constexpr int64 kMost = 4096;
  const bool grow_cp = !config.parallel.cp && !config.parallel.dp_shard;
  std::optional<Job> first;
  for (int64 ranks = 1; ranks <= kMost; ranks *= 2) {
    RunConfig candidate = config;
    candidate.parallel.num_processes = ranks;
    if (grow_cp || (!candidate.parallel.dp_shard && ranks % *candidate.parallel.cp != 0)) candidate.parallel.cp = ranks;
    if (first) {  // more ranks of a host and of a GPU have no more each
      RunShape shape = first->shape;
      shape.mesh = resolve_mesh(candidate.parallel, ranks);
      if (!state_fits(shape, config.planner, config.parallel, first->plan.budget, first->target.rates)) continue;
    }
    const Job job = plan_job(candidate);
    if (!first) first = job;
    if (!job.plan.fits()) continue;
    config = candidate;
    return;
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
  log_info("target: {}", describe(job.target));
  log_info("{}", plan_table(job.plan));
  require_fit(job);
  log_info("{}", price_table(job.plan));
  log_info("fits");
  return 0;
}

}  // namespace megatoken
