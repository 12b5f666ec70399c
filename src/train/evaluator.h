// Loss on held-out rows, equal for every mesh.
#pragma once

#include <nlohmann/json.hpp>

#include "train/rank.h"

namespace megatoken {

// The evaluation line of the log (docs: interface): step, eval_loss, eval_mean_token_accuracy, eval_tokens,
// eval_target_tokens, eval_loss_by_position, eval_runtime. Collective; the same on every rank. TrainError when the loss
// is not finite.
nlohmann::ordered_json evaluate(Rank& rank, int64 step);

}  // namespace megatoken
