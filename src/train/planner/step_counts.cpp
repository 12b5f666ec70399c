#include "train/planner/step_counts.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "device/cuda/cuda_fixed_bytes.h"
#include "model/micro_batch.h"
#include "model/parameters.h"
#include "ops/op_table.h"
#include "optim/update.h"
#include "step/counting_context.h"

namespace megatoken {
namespace {

constexpr int64 kMiB = int64{1} << 20;

// What one rank takes in host memory beside the plan: code and libraries once they have run, scratch of the products
// and attention tiles, pieces of weights on their way in and out. Measured as VmHWM of short trainings less that of
// `plan`.
constexpr int64 kHostFixedBytes = 18 * kMiB;

// Ranks that share a GPU copy between themselves, others have NCCL's buffers.
int64 fixed_device_bytes(const RunShape& shape) {
  if (!shape.on_cuda) return 0;
  const bool nccl = shape.mesh.size() > 1 && shape.ranks_per_device == 1;
  return cuda_fixed_bytes(shape.ranks_per_device) + (nccl ? kNcclBytes : 0);
}

}  // namespace

bool countable(const RunShape& shape) {
  constexpr auto kMost = static_cast<double>(int64{1} << 44);
  const ModelSpec& m = shape.model;
  const auto width = static_cast<double>(std::max(m.hidden_size, m.query_size()));
  for (const auto* documents : {&shape.train_documents, &shape.eval_documents}) {
    double tokens = 0;
    for (const int64 length : *documents) tokens += static_cast<double>(length);
    // A layer input or attention output of every layer, and some in float32; every rank's keys and values in float32.
    const double kept = tokens / static_cast<double>(shape.mesh.cp) * width * static_cast<double>(m.num_layers + 4);
    const double gathered = tokens * static_cast<double>(2 * m.num_kv_heads * m.head_dim);
    if (4 * std::max(kept, gathered) > kMost) return false;
  }
  return true;
}

StepCounts::StepCounts(const RunShape& shape, const MachineRates& rates)
    : shape_(shape), rates_(rates), buckets_(make_buckets(shape.model)) {
  if (!countable(shape))
    throw FitError("max_length: so many tokens on {} ranks need single buffers of more than 16 TiB", shape.mesh.size());
  const ModelSpec& m = shape.model;
  const int64 rows = TokenLayout(shape.train_documents, shape.mesh.cp).rows();
  input_bytes_ = align_up(rows * m.hidden_size * size_of(shape.dtype));
  output_bytes_ = align_up(rows * m.query_size() * size_of(shape.dtype)) + align_up(rows * m.num_heads * 4);
}

LocalBatch& StepCounts::batch(const std::vector<int64>& documents, const Policy& policy) {
  auto& made = batches_[{&documents == &shape_.train_documents, policy.kv_block, policy.exchange}];
  if (made == nullptr)
    made = std::make_unique<LocalBatch>(make_planning_batch(shape_.model, policy, documents, shape_.mesh.cp, 0));
  return *made;
}

const StepCounts::State& StepCounts::state(const StatePlaces& places) {
  for (const State& known : states_)
    if (known.places == places) return known;
  State& made = states_.emplace_back(
      State{places, ShardedParameters(buckets_, shape_.dtype, shape_.mesh.shards(), 0, nullptr, places), {}, {}, 0});
  made.fixed = {made.parameters.storage_bytes(Place::device) + fixed_device_bytes(shape_),
                made.parameters.storage_bytes(Place::host) + kHostFixedBytes};
  made.update = count_step([&](StepContext& ctx) {
    StepOps ops(ctx, counting_op_table(shape_.on_cuda));
    gradient_sum_squares(ops, made.parameters);
    reduce_replicas(ops, made.parameters, nullptr, shape_.mesh.dp_replicate);
    apply_update(ops, made.parameters, {});
  });
  made.update_s = price(made.update, rates_).total_s;
  return made;
}

void StepCounts::prepare(const Choice& choice) {
  state(choice.places);
  batch(shape_.train_documents, choice.policy);
  if (!shape_.eval_documents.empty()) batch(shape_.eval_documents, choice.policy);
}

CountedChoice StepCounts::count(const Choice& choice) {
  ++counted_;
  CountedChoice counted;
  counted.choice = choice;
  const State& state = this->state(choice.places);
  counted.fixed = state.fixed;
  counted.update = &state.update;
  const ModelRun run{shape_.model, choice.policy, state.parameters};
  const auto program = [&](const std::vector<int64>& documents, auto step) {
    LocalBatch& tokens = batch(documents, choice.policy);
    return count_step([&](StepContext& ctx) {
      StepOps ops(ctx, counting_op_table(shape_.on_cuda));
      step(ops, run, tokens);
    });
  };
  counted.train = program(shape_.train_documents, train_micro_batch);
  if (!shape_.eval_documents.empty()) counted.evaluation = program(shape_.eval_documents, evaluate_micro_batch);
  counted.train_price = price(counted.train, rates_);
  counted.step_time_s = static_cast<double>(shape_.micro_batches) * counted.train_price.total_s + state.update_s;
  for (const CountedStep* step : {&std::as_const(counted.train), &std::as_const(counted.evaluation), counted.update})
    for (std::size_t p = 0; p < counted.live.size(); ++p)
      counted.live[p] = std::max(counted.live[p], step->peak_live_bytes[p]);
  return counted;
}

}  // namespace megatoken
