// Runs a model over any number of CPU ranks, or on a GPU, for tests: losses, counts and whole gradients.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "comm/run_ranks.h"
#include "device/device.h"
#include "io/checkpoint_reader.h"
#include "memory/arena.h"
#include "model/micro_batch.h"
#include "model/parameters.h"
#include "model/weights.h"
#include "plan/plan.h"
#include "step/checking_context.h"
#include "step/counting_context.h"
#include "step/executing_context.h"

namespace megatoken::test {

struct Documents {
  std::vector<int64> lengths;
  std::vector<std::int32_t> ids, targets;  // of all documents one behind the other

  // labels as in a dataset: unshifted, -100 for none.
  void add(const std::vector<std::int32_t>& document, const std::vector<std::int32_t>& labels) {
    lengths.push_back(static_cast<int64>(document.size()));
    ids.insert(ids.end(), document.begin(), document.end());
    for (std::size_t i = 0; i < document.size(); ++i) targets.push_back(i + 1 < document.size() ? labels[i + 1] : -100);
  }
  void add(const std::vector<std::int32_t>& document) { add(document, document); }
};

struct Outcome {
  double loss_sum = 0, correct = 0, entropy_sum = 0;
  double aux_loss = 0;  // summed over the micro-batches
  int64 targets = 0;
  std::map<std::string, std::vector<float>> gradients;  // of the sum of losses, whole parameters
  std::map<int64, int64> bytes_sent;                    // by rank
};

inline Policy plain_policy(const ModelSpec& spec) {
  Policy policy;
  policy.layer_input.assign(static_cast<std::size_t>(spec.num_layers), Keep::device);
  policy.attention_output.assign(static_cast<std::size_t>(spec.num_layers), Keep::device);
  return policy;
}

struct RunOptions {
  int64 cp = 1;
  DType dtype = DType::f32;
  bool backward = true;
  StatePlaces places;
  bool on_cuda = false;  // the first GPU; cp 1
  double balance_scale = 0;  // LocalBatch's
  bool zero_routers = false;  // every expert equally probable: all tokens go to the first ones
};

inline void zero_routers(ShardedParameters& parameters, Stream& stream) {
  for (std::size_t b = 0; b < parameters.buckets().size(); ++b)
    for (const auto& span : parameters.spans(static_cast<int64>(b))) {
      if (!span.parameter->name.ends_with("mlp.gate.weight")) continue;
      const std::vector<float> zeros(static_cast<std::size_t>(span.count));
      parameters.write(stream, StateKind::master, static_cast<int64>(b), span.offset_in_shard, span.count, zeros.data());
    }
}

// Counts, checks and executes the micro-batches one after the other, gradients accumulating. weights_dir: a checkpoint;
// empty: random weights from a seed.
inline Outcome run_model(const ModelSpec& spec, const std::string& weights_dir, const Policy& policy,
                         const std::vector<Documents>& micro_batches, const RunOptions& options = {}) {
  Outcome outcome;
  std::mutex mutex;
  run_ranks(options.cp, [&](Group& world) {
    const auto device = options.on_cuda ? create_cuda_device(0) : create_cpu_device(1);
    const OpTable& table = options.on_cuda ? cuda_op_table() : cpu_op_table();
    const auto stream = device->create_stream(StreamMode::in_order_inline);
    ShardedParameters parameters(make_buckets(spec), options.dtype, options.cp, world.rank(), device.get(), options.places);
    if (weights_dir.empty())
      initialize_weights(parameters, *stream, spec, 7);
    else
      load_weights(parameters, *stream, CheckpointReader::open(weights_dir));
    if (options.zero_routers) zero_routers(parameters, *stream);
    const ModelRun run{spec, policy, parameters, &world, &world};
    for (const Documents& documents : micro_batches) {
      LocalBatch batch =
          make_local_batch(spec, policy, documents.lengths, documents.ids, documents.targets, options.cp, world.rank());
      batch.balance_scale = options.balance_scale;
      const auto step = [&](StepContext& ctx) {
        StepOps ops(ctx, table);
        options.backward ? train_micro_batch(ops, run, batch) : evaluate_micro_batch(ops, run, batch);
      };
      const auto plan = std::make_shared<const Plan>(pack(count_step(step)));
      check_step(*plan, step);
      Arena arena(*device, plan->arena_bytes(), nullptr, ArenaOptions{.poison = true});
      ExecutingContext context(*device, arena, plan);
      step(context);
      const std::lock_guard lock(mutex);
      for (std::size_t i = 0; i < batch.labels.size(); ++i) {
        outcome.loss_sum += batch.loss[i];
        outcome.correct += batch.correct[i];
        outcome.entropy_sum += batch.entropy[i];
      }
      outcome.targets += batch.labelled;
      if (world.rank() == 0) outcome.aux_loss += batch.aux_loss;
    }
    const std::lock_guard lock(mutex);
    outcome.bytes_sent[world.rank()] = world.bytes_sent();
    for (std::size_t b = 0; b < parameters.buckets().size() && options.backward; ++b)
      for (const auto& span : parameters.spans(static_cast<int64>(b))) {
        auto& whole = outcome.gradients[span.parameter->name];
        whole.resize(static_cast<std::size_t>(span.parameter->elements()));
        parameters.read(*stream, StateKind::gradient, static_cast<int64>(b), span.offset_in_shard, span.count,
                        whole.data() + span.first);
      }
  });
  return outcome;
}

// ||a - b|| / ||b||.
inline double relative_difference(const std::vector<float>& a, const std::vector<float>& b, double scale_a = 1) {
  check(a.size() == b.size(), "{} and {} values", a.size(), b.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = a[i] * scale_a - b[i];
    difference += d * d;
    norm += static_cast<double>(b[i]) * b[i];
  }
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

inline double gradient_norm(const Outcome& outcome) {
  double sum = 0;
  for (const auto& [name, values] : outcome.gradients)
    for (const float v : values) sum += static_cast<double>(v) * v;
  return std::sqrt(sum) / static_cast<double>(outcome.targets);
}

}  // namespace megatoken::test
