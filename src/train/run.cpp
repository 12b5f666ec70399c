#include "train/run.h"

#include <unistd.h>

#include <atomic>
#include <functional>

#include "base/log.h"
#include "base/signals.h"
#include "comm/process_ranks.h"
#include "comm/run_ranks.h"
#include "spec/launch.h"
#include "train/evaluator.h"
#include "train/trainer.h"

namespace megatoken {
namespace {

// A rank that is stuck in a kernel, or in a call that never returns, shall not outlive its job.
void end_process(const Abort& failure) {
  log_error("{} (this rank could not stop by itself)", failure.reason);
  _exit(static_cast<int>(failure.code));
}

JoinOptions join_options(const Launch& launch, const RunConfig& config) {
  JoinOptions options;
  options.rank = launch.first_rank;
  options.size = launch.size;
  options.master = launch.master;
  options.ports = launch.ports;
  options.job = launch.job;
  options.one_host = launch.one_host;
  options.join = std::chrono::seconds(launch.join_seconds);
  options.settings = settings_of(config);
  options.overdue = end_process;
  return options;
}

void run_job(RunConfig config, Purpose purpose, const std::function<void(const Job&, Group& world)>& body) {
  const Launch launch = find_launch(config.parallel, process_environment());
  if (launch.alone()) {
    const Job job = make_job(std::move(config), purpose, launch.size);
    watch_stop_signals();
    return run_ranks(launch.size, [&](Group& world) { body(job, world); });
  }
  resolve_mesh(config.parallel, launch.size);  // what is wrong with it every rank can tell by itself
  set_log_silent(launch.first_rank != 0);
  ProcessRanks ranks(join_options(launch, config), launch.ranks_here);
  std::optional<Job> job;
  ranks.guard([&] { job = make_job(std::move(config), purpose, launch.size, Company(ranks.first())); });
  watch_stop_signals();
  // Between GPUs data moves by NCCL.
  ranks.run(job->on_cuda ? GroupUse::host : GroupUse::all, [&](Group& world) { body(*job, world); });
}

}  // namespace

int run_training(RunConfig config) {
  std::atomic<int> status{0};
  run_job(std::move(config), Purpose::train, [&](const Job& job, Group& world) { status = train_rank(job, world); });
  return status;
}

std::optional<nlohmann::ordered_json> run_evaluation(RunConfig config) {
  std::optional<nlohmann::ordered_json> line;
  run_job(std::move(config), Purpose::evaluate, [&](const Job& job, Group& world) {
    set_log_silent(world.rank() != 0);
    if (job.eval_counts.anything_to_say()) log_warning("evaluation data: {}", describe(job.eval_counts));
    Rank rank(job, world);
    const auto result = evaluate(rank, 0);
    if (world.rank() == 0) line = result;
  });
  return line;
}

}  // namespace megatoken
