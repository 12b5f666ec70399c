#include "cli/cli.h"
#include "train/run.h"

namespace megatoken {

// Notices are part of the summary before step 1.
int run_train(const Invocation& invocation) { return run_training(read_config(invocation)); }

}  // namespace megatoken
