#include "train/run.h"

#include <atomic>

#include "base/log.h"
#include "base/signals.h"
#include "comm/run_ranks.h"
#include "train/evaluator.h"
#include "train/trainer.h"

namespace megatoken {

int run_training(RunConfig config) {
  const int64 ranks = config.parallel.num_processes.value_or(1);
  const Job job = make_job(std::move(config), Purpose::train, ranks);
  watch_stop_signals();
  std::atomic<int> status{0};
  run_ranks(ranks, [&](Group& world) {
    const int result = train_rank(job, world);
    if (world.rank() == 0) status = result;
  });
  return status;
}

nlohmann::ordered_json run_evaluation(RunConfig config) {
  const int64 ranks = config.parallel.num_processes.value_or(1);
  const Job job = make_job(std::move(config), Purpose::evaluate, ranks);
  if (job.eval_counts.anything_to_say()) log_warning("evaluation data: {}", describe(job.eval_counts));
  nlohmann::ordered_json line;
  run_ranks(ranks, [&](Group& world) {
    set_log_silent(world.rank() != 0);
    Rank rank(job, world);
    const auto result = evaluate(rank, 0);
    if (world.rank() == 0) line = result;
  });
  return line;
}

}  // namespace megatoken
