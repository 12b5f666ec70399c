#include "train/evaluator.h"

#include <chrono>
#include <cmath>

#include "data/sampler.h"

namespace megatoken {

nlohmann::ordered_json evaluate(Rank& rank, int64 step) {
  const Job& job = rank.job();
  const auto begin = std::chrono::steady_clock::now();
  SamplerOptions options;
  options.rows = job.eval_data->rows();
  options.order = RowOrder::sequential;
  options.batch = job.config.training.per_device_eval_batch_size;
  options.dp = job.mesh.dp();
  Sampler sampler(options);
  Totals totals;
  for (int64 i = 0; i < sampler.steps_per_epoch(); ++i)
    rank.evaluate(*job.eval_data, sampler.next().micro_batch(0, rank.dp_rank()), totals);
  totals.reduce(rank.world());
  if (!std::isfinite(totals.loss)) throw TrainError("evaluation loss is not finite at step {}", step);

  nlohmann::ordered_json line;
  line["step"] = step;
  line["eval_loss"] = totals.mean_loss();
  line["eval_mean_token_accuracy"] = totals.correct / totals.targets;
  line["eval_entropy"] = totals.entropy / totals.targets;
  line["eval_tokens"] = static_cast<int64>(totals.tokens);
  line["eval_target_tokens"] = static_cast<int64>(totals.targets);
  auto& parts = line["eval_loss_by_position"] = nlohmann::ordered_json::array();
  for (std::size_t p = 0; p < kPositionParts; ++p) {
    if (totals.part_targets[p] > 0)
      parts.push_back(totals.part_loss[p] / totals.part_targets[p]);
    else
      parts.push_back(nullptr);
  }
  line["eval_runtime"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return line;
}

}  // namespace megatoken
