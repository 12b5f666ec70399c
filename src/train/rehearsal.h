// A rehearsal: one rank's exact share of a job of many ranks, run on the one device at hand. The plan is the target's;
// real buffers and kernels; exchanges are local copies of the same bytes, and their time over the links is modelled.
#pragma once

#include <nlohmann/json.hpp>

#include "train/job.h"

namespace megatoken {

struct RehearsalOptions {
  int64 rank = 0;    // whose share
  int64 layers = 0;  // how many layers are run here; 0: all of them
  int64 steps = 2;   // measured, after one that is not
};

struct Rehearsal {
  int64 layers = 0;
  double micro_batch_s = 0;       // measured, of the layers that ran
  double update_s = 0;            // measured, with the gradient's norm
  double step_time_s = 0;         // scaled to all layers, with exchange as it is modelled
  double exchange_s = 0;          // modelled: bytes over the link's rate, of a step
  double exchange_exposed_s = 0;  // of it, compute waits
  int64 arena_bytes = 0;          // of the layers that ran, on the device
  int64 process_bytes = 0;        // VmHWM of this process
  double loss = 0;                // mean, of random tokens and weights: finite when all is well
};

// job: made for planning. FitError when its plan does not fit, or when it is for a GPU and none is here.
Rehearsal rehearse(const Job& job, const RehearsalOptions& options);

nlohmann::ordered_json json_of(const Job& job, const Rehearsal& rehearsal);

}  // namespace megatoken
