#include "model/activation_store.h"

namespace megatoken {
namespace {

// The first layer of each recomputed segment keeps its input.
std::vector<Keep> effective_inputs(const Policy& policy, const ModelSpec& spec) {
  std::vector<Keep> inputs = policy.layer_input;
  for (const LayerRun& run : layer_runs(policy, spec))
    for (int64 i = 0; i < run.count && run.input == Keep::recompute; i += policy.recompute_segment)
      inputs[static_cast<std::size_t>(run.first + i)] = policy.segment_input;
  return inputs;
}

}  // namespace

std::vector<LayerRun> layer_runs(const Policy& policy, const ModelSpec& spec) {
  const int64 num_layers = spec.num_layers;
  check(static_cast<int64>(policy.layer_input.size()) == num_layers &&
            static_cast<int64>(policy.attention_output.size()) == num_layers,
        "policy of {} layers for {}", policy.layer_input.size(), num_layers);
  std::vector<LayerRun> runs;
  for (int64 i = 0; i < num_layers; ++i) {
    const Keep input = policy.layer_input[static_cast<std::size_t>(i)];
    const Keep output = policy.attention_output[static_cast<std::size_t>(i)];
    const bool sparse = spec.is_sparse(i);
    if (runs.empty() || runs.back().input != input || runs.back().output != output || runs.back().sparse != sparse)
      runs.push_back({i, 0, input, output, sparse});
    ++runs.back().count;
  }
  return runs;
}

ActivationStore::ActivationStore(StepOps& ops, const ModelSpec& spec, const Policy& policy, int64 rows, DType dtype, bool keep)
    : ops_(ops),
      policy_(policy),
      input_policy_(effective_inputs(policy, spec)),
      num_layers_(spec.num_layers),
      rows_(rows),
      hidden_(spec.hidden_size),
      query_cols_(spec.query_size()),
      heads_(spec.num_heads),
      dtype_(dtype),
      keep_(keep) {
  auto& ctx = ops.context();
  int64 count[2][3] = {};  // [input, output][Keep]
  for (int64 i = 0; i < num_layers_ && keep; ++i) {
    input_slot_.push_back(count[0][static_cast<int>(input_policy_[static_cast<std::size_t>(i)])]++);
    output_slot_.push_back(count[1][static_cast<int>(policy.attention_output[static_cast<std::size_t>(i)])]++);
  }
  const auto kept = [&](int which, Keep where) { return count[which][static_cast<int>(where)]; };
  if (const int64 n = kept(0, Keep::device); n > 0) device_inputs_ = ctx.array("layer inputs", n, rows, hidden_, dtype);
  if (const int64 n = kept(0, Keep::host); n > 0)
    host_inputs_ = ctx.array("layer inputs on the host", n, rows, hidden_, dtype, Place::host);
  if (const int64 n = kept(1, Keep::device); n > 0) {
    device_outputs_ = ctx.array("attention outputs", n, rows, query_cols_, dtype);
    device_lse_ = ctx.array("log-sum-exps", n, heads_, rows, DType::f32);
  }
  if (const int64 n = kept(1, Keep::host); n > 0) {
    host_outputs_ = ctx.array("attention outputs on the host", n, rows, query_cols_, dtype, Place::host);
    host_lse_ = ctx.array("log-sum-exps on the host", n, heads_, rows, DType::f32, Place::host);
  }
  input_ring_ = ctx.ring("layer input", 2, rows, hidden_, dtype);
  const int64 output_depth = 1 + (kept(1, Keep::host) > 0 ? policy.prefetch : 0);
  if (kept(1, Keep::device) < num_layers_ || !keep) {
    output_ring_ = ctx.ring("attention output", output_depth, rows, query_cols_, dtype);
    lse_ring_ = ctx.ring("log-sum-exp", output_depth, heads_, rows, DType::f32);
  }
}

Keep ActivationStore::input_policy(int64 layer) const {
  if (!keep_ || layer == num_layers_) return Keep::recompute;  // nowhere
  return input_policy_[static_cast<std::size_t>(layer)];
}

Keep ActivationStore::output_policy(int64 layer) const {
  return keep_ ? policy_.attention_output[static_cast<std::size_t>(layer)] : Keep::recompute;
}

ActivationStore::Held ActivationStore::input(int64 layer) {
  Held held;
  if (input_policy(layer) == Keep::device) {
    held.view = device_inputs_.at(input_slot_[static_cast<std::size_t>(layer)]);
    return held;
  }
  held.buffer = input_ring_.acquire();
  held.view = held.buffer;
  return held;
}

ActivationStore::Held ActivationStore::output(int64 layer) {
  Held held;
  if (output_policy(layer) == Keep::device) {
    held.view = device_outputs_.at(output_slot_[static_cast<std::size_t>(layer)]);
    held.lse = device_lse_.at(output_slot_[static_cast<std::size_t>(layer)]);
    return held;
  }
  held.buffer = output_ring_.acquire();
  held.lse_buffer = lse_ring_.acquire();
  held.view = held.buffer;
  held.lse = held.lse_buffer;
  return held;
}

void ActivationStore::keep_input(int64 layer, const Held& held) {
  if (input_policy(layer) == Keep::host)
    last_to_host_ = ops_.copy(StreamId::d2h, "layer input to host", held.view,
                              host_inputs_.at(input_slot_[static_cast<std::size_t>(layer)]));
}

void ActivationStore::keep_output(int64 layer, const Held& held) {
  if (output_policy(layer) != Keep::host) return;
  const int64 slot = output_slot_[static_cast<std::size_t>(layer)];
  ops_.copy(StreamId::d2h, "attention output to host", held.view, host_outputs_.at(slot));
  last_to_host_ = ops_.copy(StreamId::d2h, "log-sum-exp to host", held.lse, host_lse_.at(slot));
}

void ActivationStore::end_outputs() {
  ops_.context().wait(last_to_host_, "activations on the host");
  output_ring_.reset();
  lse_ring_.reset();
}

void ActivationStore::turn() {
  input_ring_.reset();
  auto& ctx = ops_.context();
  if (host_inputs_.held()) input_ring_ = ctx.ring("fetched layer input", 1 + policy_.prefetch, rows_, hidden_, dtype_);
  if (host_outputs_.held()) {
    output_ring_ = ctx.ring("fetched attention output", 1 + policy_.prefetch, rows_, query_cols_, dtype_);
    lse_ring_ = ctx.ring("fetched log-sum-exp", 1 + policy_.prefetch, heads_, rows_, DType::f32);
  }
}

ActivationStore::Held ActivationStore::fetch_input(int64 layer) {
  Held held;
  const Keep policy = input_policy(layer);
  check(policy != Keep::recompute, "layer {} keeps no input", layer);
  const int64 slot = input_slot_[static_cast<std::size_t>(layer)];
  if (policy == Keep::device) {
    held.view = device_inputs_.at(slot);
    return held;
  }
  held.buffer = input_ring_.acquire();
  held.view = held.buffer;
  held.ticket = ops_.copy(StreamId::h2d, "layer input from host", host_inputs_.at(slot), held.view);
  return held;
}

ActivationStore::Held ActivationStore::fetch_output(int64 layer) {
  Held held;
  const int64 slot = output_slot_[static_cast<std::size_t>(layer)];
  switch (output_policy(layer)) {
    case Keep::device:
      held.view = device_outputs_.at(slot);
      held.lse = device_lse_.at(slot);
      return held;
    case Keep::recompute:
      return held;
    case Keep::host:
      break;
  }
  held.buffer = output_ring_.acquire();
  held.lse_buffer = lse_ring_.acquire();
  held.view = held.buffer;
  held.lse = held.lse_buffer;
  ops_.copy(StreamId::h2d, "attention output from host", host_outputs_.at(slot), held.view);
  held.ticket = ops_.copy(StreamId::h2d, "log-sum-exp from host", host_lse_.at(slot), held.lse);
  return held;
}

ActivationStore::Held ActivationStore::recomputed_output() {
  Held held;
  held.buffer = ops_.context().buffer("recomputed attention output", rows_, query_cols_, dtype_);
  held.lse_buffer = ops_.context().buffer("recomputed log-sum-exp", heads_, rows_, DType::f32);
  held.view = held.buffer;
  held.lse = held.lse_buffer;
  return held;
}

void ActivationStore::wait(const Held& held) { ops_.context().wait(held.ticket, "kept activations"); }

}  // namespace megatoken
