#include "train/rehearsal.h"

#include <chrono>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "model/micro_batch.h"
#include "model/parameters.h"
#include "model/weights.h"
#include "optim/update.h"
#include "train/process_memory.h"
#include "train/step_runner.h"

namespace megatoken {
namespace {

using Clock = std::chrono::steady_clock;

// The first layers of the model under the policy of all of them: each as the layer at the same share of the depth.
Policy policy_of(const Policy& whole, int64 layers) {
  Policy policy = whole;
  const auto all = static_cast<int64>(whole.layer_input.size());
  policy.layer_input.clear();
  policy.attention_output.clear();
  for (int64 i = 0; i < layers; ++i) {
    const auto from = static_cast<std::size_t>(i * all / layers);
    policy.layer_input.push_back(whole.layer_input[from]);
    policy.attention_output.push_back(whole.attention_output[from]);
  }
  return policy;
}

double compute_s(const StepPrice& price) {
  return std::accumulate(price.compute_s.begin(), price.compute_s.end(), 0.0);
}

// Tokens without meaning, each with a target, as many as the plan is for.
LocalBatch tokens_of(const RunShape& shape, const Policy& policy, int64 cp_rank) {
  const int64 total = std::accumulate(shape.train_documents.begin(), shape.train_documents.end(), int64{0});
  std::vector<std::int32_t> ids(static_cast<std::size_t>(total));
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>(i * 2654435761u % static_cast<std::size_t>(shape.model.vocab_size));
  return make_local_batch(shape.model, policy, shape.train_documents, ids, ids, shape.mesh.cp, cp_rank);
}

}  // namespace

Rehearsal rehearse(const Job& job, const RehearsalOptions& options) {
  require_fit(job);
  const Mesh& mesh = job.mesh;
  if (options.rank < 0 || options.rank >= mesh.size())
    throw ConfigError("--rank: {} is none of the {} ranks", options.rank, mesh.size());
  if (options.layers < 0 || options.layers > job.model.num_layers)
    throw ConfigError("--layers: {} of the model's {}", options.layers, job.model.num_layers);
  if (job.on_cuda && !job.target.here)
    throw FitError("rehearse: a GPU is needed to rehearse a job for GPUs, and there is none");

  Rehearsal result;
  result.layers = options.layers == 0 ? job.model.num_layers : options.layers;
  RunShape shape = job.shape;
  shape.model.num_layers = result.layers;
  const PlannedRun plan =
      plan_policy(shape, policy_of(job.plan.policy, result.layers), job.plan.places, job.plan.budget, job.target.rates);

  const auto device =
      job.on_cuda
          ? create_cuda_device(0)
          : create_cpu_device(static_cast<int>(std::max<int64>(1, job.machine.cores / job.target.ranks_per_host)));
  const auto stream = device->create_stream(StreamMode::in_order_inline);
  const OpTable& table = job.on_cuda ? cuda_op_table() : cpu_op_table();
  const auto cp = create_loopback_group(mesh.cp_rank(options.rank), mesh.cp);
  const auto shards = create_loopback_group(mesh.shard_rank(options.rank), mesh.shards());
  const auto replicas = create_loopback_group(mesh.replica(options.rank), mesh.dp_replicate);
  ShardedParameters parameters(make_buckets(shape.model), shape.dtype, mesh.shards(), shards->rank(), device.get(),
                               plan.places);
  initialize_weights(parameters, *stream, shape.model, 0);
  StepRunner runner(*device, table, plan);
  LocalBatch batch = tokens_of(shape, plan.policy, cp->rank());
  const ModelRun run{shape.model, plan.policy, parameters, cp.get(), shards.get()};

  double micro_s = 0, update_s = 0;
  const auto timed = [](double& sum, const auto& work) {
    const auto begin = Clock::now();
    work();
    sum += std::chrono::duration<double>(Clock::now() - begin).count();
  };
  for (int64 step = 0; step <= options.steps; ++step) {
    if (step == 1) micro_s = update_s = 0;  // the first one builds kernel plans
    timed(micro_s,
          [&] { runner.run("train", plan.train_plan, [&](StepOps& ops) { train_micro_batch(ops, run, batch); }); });
    timed(update_s, [&] {
      if (mesh.dp_replicate > 1)
        runner.run("replicas", plan.update_plan,
                   [&](StepOps& ops) { reduce_replicas(ops, parameters, replicas.get(), mesh.dp_replicate); });
      runner.run("norm", plan.update_plan, [&](StepOps& ops) { gradient_sum_squares(ops, parameters); });
      runner.run("update", plan.update_plan, [&](StepOps& ops) { apply_update(ops, parameters, {}); });
    });
  }
  const auto steps = static_cast<double>(std::max<int64>(options.steps, 1));
  result.micro_batch_s = micro_s / steps;
  result.update_s = update_s / steps;
  const auto layers = static_cast<double>(job.model.num_layers) / static_cast<double>(result.layers);
  const StepPrice& whole = job.plan.train_price;
  const auto exchange = static_cast<std::size_t>(StreamId::exchange);
  const auto micro_batches = static_cast<double>(shape.micro_batches);
  result.exchange_s = micro_batches * whole.busy_s[exchange];
  result.exchange_exposed_s = micro_batches * whole.exposed_s[exchange];
  // Embedding and loss don't grow with the layers: measured time grows as the predicted one does.
  result.step_time_s = micro_batches * result.micro_batch_s * compute_s(whole) / compute_s(plan.train_price) +
                       result.exchange_exposed_s + layers * result.update_s;
  result.arena_bytes = plan.arena[static_cast<std::size_t>(Place::device)];
  result.process_bytes = peak_resident_bytes();
  result.loss = std::accumulate(batch.loss.begin(), batch.loss.end(), 0.0) /
                static_cast<double>(std::max<int64>(1, batch.labelled));
  if (!std::isfinite(result.loss)) throw TrainError("rehearse: the loss is not finite");
  return result;
}

nlohmann::ordered_json json_of(const Job& job, const Rehearsal& r) {
  nlohmann::ordered_json line;
  line["step"] = 1;
  line["rehearsed_layers"] = r.layers;
  line["layers"] = job.model.num_layers;
  line["num_processes"] = job.mesh.size();
  line["step_time_s"] = r.step_time_s;
  line["predicted_step_time_s"] = job.plan.step_time_s;
  line["measured_micro_batch_s"] = r.micro_batch_s;
  line["measured_update_s"] = r.update_s;
  line["exchange_s"] = r.exchange_s;
  line["exchange_exposed_s"] = r.exchange_exposed_s;
  line["peak_device_bytes"] = job.plan.device_bytes();
  line["peak_host_bytes"] = job.plan.host_bytes() * job.target.ranks_per_host;
  line["rehearsed_arena_bytes"] = r.arena_bytes;
  line["process_bytes"] = r.process_bytes;
  line["loss"] = r.loss;
  return line;
}

}  // namespace megatoken
