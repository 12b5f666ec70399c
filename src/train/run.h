// Runs a whole job on this process's ranks: all of them, as threads, or those that a launcher gave to this process.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "spec/run_config.h"

namespace megatoken {

// Trains as configured. Returns the exit status (0, 130 or 143); throws Error; JobError (comm/process_ranks.h) when
// another process of the job has failed.
int run_training(RunConfig config);
// The evaluation line of the model on its evaluation dataset; nullopt in a process that has not rank 0.
std::optional<nlohmann::ordered_json> run_evaluation(RunConfig config);

}  // namespace megatoken
