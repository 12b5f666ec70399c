#include "base/log.h"
#include "cli/cli.h"
#include "io/file.h"
#include "report/run_log.h"
#include "train/rehearsal.h"
#include "train/summary.h"

namespace megatoken {

int run_rehearse(const Invocation& invocation) {
  const RunConfig config = read_config(invocation);
  if (!invocation.json) print_notices(config);
  const bool logs = config.given.contains("output_dir");
  if (logs) check_writable(config.training.output_dir);
  const Job job = make_job(config, Purpose::rehearse, config.parallel.num_processes.value_or(1));
  if (!invocation.json) {
    log_info("target: {}", describe(job.target));
    log_info("{}", plan_table(job.plan));
    log_info("{}", price_table(job.plan));
  }
  RehearsalOptions options;
  options.rank = invocation.rank;
  options.layers = invocation.layers;
  const Rehearsal done = rehearse(job, options);
  const nlohmann::ordered_json line = json_of(job, done);
  if (logs) RunLog(config.training.output_dir, -1).write(line);
  if (invocation.json) {
    log_info("{}", line.dump());
    return 0;
  }
  log_info("rehearsed rank {} of {}, {} of {} layers: micro-batch {:.3f} s, update {:.3f} s measured", options.rank,
           job.mesh.size(), done.layers, job.model.num_layers, done.micro_batch_s, done.update_s);
  log_info("step: {:.3f} s for all layers ({:.3f} s predicted); exchange {:.3f} s modelled, {:.3f} s of it exposed",
           done.step_time_s, job.plan.step_time_s, done.exchange_s, done.exchange_exposed_s);
  constexpr double kGiB = 1 << 30;
  log_info("peak: {:.2f} GiB on each device, {:.2f} GiB on each host",
           static_cast<double>(job.plan.device_bytes()) / kGiB,
           static_cast<double>(job.plan.host_bytes() * job.target.ranks_per_host) / kGiB);
  return 0;
}

}  // namespace megatoken
