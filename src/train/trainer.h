// The training loop of one rank. Every choice that changes what ranks do together is taken on all-reduced values.
#pragma once

#include "comm/group.h"
#include "train/job.h"

namespace megatoken {

// Trains to the end, evaluates and saves as configured. Collective over world. Returns 0, or 130 / 143 when a signal
// stopped the run after saving. Throws TrainError (exit 5) for non-finite values and lost ranks.
int train_rank(const Job& job, Group& world);

}  // namespace megatoken
