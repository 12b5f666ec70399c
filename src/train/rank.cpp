#include "train/rank.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "comm/device_group.h"
#include "model/parameters.h"
#include "model/weights.h"

namespace megatoken {
namespace {

int64 local_rank(const Job& job, const Group& world) { return job.local_ranks[static_cast<std::size_t>(world.rank())]; }

std::optional<CpuShare> share_processors(const Job& job, const Group& world) {
  if (job.on_cuda) return std::nullopt;
  return std::optional<CpuShare>(std::in_place, local_rank(job, world), job.ranks_per_host);
}

std::unique_ptr<Device> make_device(const Job& job, const Group& world) {
  if (job.on_cuda) return create_cuda_device(static_cast<int>(local_rank(job, world) % cuda_device_count()));
  return create_cpu_device(static_cast<int>(std::max<int64>(1, job.machine.cores / job.ranks_per_host)));
}

}  // namespace

Rank::Rank(const Job& job, Group& world)
    : job_(job),
      world_(world),
      processors_(share_processors(job, world)),
      device_(make_device(job, world)),
      shards_(create_device_group(world.split(job.mesh.replica(world.rank())), *device_)),
      // The same ranks need no second communicator, which would have buffers of its own.
      cp_(job.mesh.dp_shard == 1 ? shards_
                                 : create_device_group(world.split(job.mesh.dp_rank(world.rank())), *device_)),
      replicas_(create_device_group(world.split(job.mesh.shard_rank(world.rank())), *device_)),
      stream_(device_->create_stream(StreamMode::in_order_inline)),
      table_(job.on_cuda ? cuda_op_table() : cpu_op_table()),
      parameters_(make_buckets(job.model), job.dtypes.compute, job.mesh.shards(), job.mesh.shard_rank(world.rank()),
                  device_.get(), job.plan.places),
      runner_(*device_, table_, job.plan) {
  if (!job.resume_from.empty()) return;  // the checkpoint brings the weights
  if (job.weights != nullptr)
    load_weights(parameters_, *stream_, *job.weights);
  else
    initialize_weights(parameters_, *stream_, job.model, static_cast<std::uint64_t>(job.config.data.seed));
}

ModelRun Rank::model_run() const { return {job_.model, job_.plan.policy, parameters_, cp_.get(), shards_.get()}; }

void Rank::weigh_balance(const PreparedDataset& data, const StepRows& rows) {
  std::array<double, 2> counts{};  // targets, micro-batches
  for (int64 micro = 0; micro < rows.micro_steps() && cp_->rank() == 0; ++micro) {
    fill_micro_batch(data, rows.micro_batch(micro, dp_rank()), micro_batch_);
    counts[0] += static_cast<double>(std::ranges::count_if(micro_batch_.targets, [](std::int32_t t) { return t >= 0; }));
    counts[1] += micro_batch_.tokens() > 0 ? 1 : 0;
  }
  world_.all_reduce_host(counts, Reduce::sum);
  balance_scale_ = counts[1] == 0 ? 0 : job_.model.experts.aux_loss_coef * counts[0] / counts[1];
}

void Rank::train(const PreparedDataset& data, std::span<const int64> rows, Totals& totals) {
  run_micro_batch(data, rows, true, totals);
}
void Rank::evaluate(const PreparedDataset& data, std::span<const int64> rows, Totals& totals) {
  run_micro_batch(data, rows, false, totals);
}

void Rank::run_micro_batch(const PreparedDataset& data, std::span<const int64> rows, bool train, Totals& totals) {
  fill_micro_batch(data, rows, micro_batch_);
  const std::vector<int64> lengths = micro_batch_.lengths();
  LocalBatch batch = make_local_batch(job_.model, job_.plan.policy, lengths, micro_batch_.ids, micro_batch_.targets,
                                      job_.mesh.cp, cp_->rank());
  batch.balance_scale = balance_scale_;
  const std::string key =
      fmt::format("{} {} {}", train ? "train" : "evaluate", batch.labelled, fmt::join(lengths, ","));
  const ModelRun run = model_run();
  runner_.run(key, train ? job_.plan.train_plan : job_.plan.evaluation_plan, [&](StepOps& ops) {
    train ? train_micro_batch(ops, run, batch) : evaluate_micro_batch(ops, run, batch);
  });
  totals.add(batch);
  if (cp_->rank() != 0) return;
  totals.tokens += static_cast<double>(micro_batch_.tokens());
  if (train && micro_batch_.tokens() > 0) {
    totals.aux_loss += batch.aux_loss;
    totals.aux_batches += 1;
  }
}

double Rank::gradient_norm() {
  const auto& planned = job_.plan.update_plan;
  if (job_.mesh.dp_replicate > 1)
    runner_.run("reduce replicas", planned,
                [&](StepOps& ops) { reduce_replicas(ops, parameters_, replicas_.get(), job_.mesh.dp_replicate); });
  double sum = 0;
  runner_.run("gradient norm", planned, [&](StepOps& ops) {
    const double value = gradient_sum_squares(ops, parameters_);
    if (ops.context().executing()) sum = value;
  });
  shards_->all_reduce_host(std::span(&sum, 1), Reduce::sum);
  return std::sqrt(sum);
}

void Rank::update(const UpdateSettings& settings) {
  runner_.run("update", job_.plan.update_plan, [&](StepOps& ops) { apply_update(ops, parameters_, settings); });
}

}  // namespace megatoken
