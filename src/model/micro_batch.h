// Forward and backward of one micro-batch on one rank, written once for planning, checking and execution.
#pragma once

#include "comm/group.h"
#include "model/local_batch.h"
#include "parallel/sharded_parameters.h"
#include "spec/policy.h"
#include "step/step_ops.h"

namespace megatoken {

struct ModelRun {
  const ModelSpec& spec;
  const Policy& policy;
  const ShardedParameters& parameters;
  Group* cp_group = nullptr;     // ranks of the sequence; null when nothing executes
  Group* shard_group = nullptr;  // ranks that share the parameters; null when nothing executes
};

// Adds the gradient of the sum of the micro-batch's losses to the accumulated gradient and writes the per-row results of
// the batch. Ends with finish(): everything has run when it returns.
void train_micro_batch(StepOps& ops, const ModelRun& run, LocalBatch& batch);
// Writes the per-row results only.
void evaluate_micro_batch(StepOps& ops, const ModelRun& run, LocalBatch& batch);

}  // namespace megatoken
