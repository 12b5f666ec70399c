// Runs a whole job on this process's ranks.
#pragma once

#include <nlohmann/json.hpp>

#include "spec/run_config.h"

namespace megatoken {

// Trains as configured, on `num_processes` threads of this process. Returns the exit status (0, 130 or 143); throws Error.
int run_training(RunConfig config);
// The evaluation line of the model on its evaluation dataset.
nlohmann::ordered_json run_evaluation(RunConfig config);

}  // namespace megatoken
