#include <fmt/format.h>

#include "base/log.h"
#include "cli/cli.h"
#include "train/run.h"

namespace megatoken {

int run_eval(const Invocation& invocation) {
  const RunConfig config = read_config(invocation);
  const auto result = run_evaluation(config);
  if (!result) return 0;  // rank 0, in another process, speaks
  const nlohmann::ordered_json& line = *result;
  if (!invocation.json) print_notices(config);
  if (invocation.json) {
    log_info("{}", line.dump());
    return 0;
  }
  log_info("loss {:.6f}, accuracy {:.4f}, entropy {:.4f} over {} targets in {} tokens", line["eval_loss"].get<double>(),
           line["eval_mean_token_accuracy"].get<double>(), line["eval_entropy"].get<double>(),
           line["eval_target_tokens"].get<int64>(), line["eval_tokens"].get<int64>());
  std::string parts;
  for (const auto& part : line["eval_loss_by_position"])
    parts += part.is_null() ? " -" : fmt::format(" {:.4f}", part.get<double>());
  log_info("loss by position, eight equal parts:{}", parts);
  return 0;
}

}  // namespace megatoken
