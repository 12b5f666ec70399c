// One rank at work: its device, groups, share of the state, and the micro-batches it runs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "comm/group.h"
#include "data/batch.h"
#include "data/sampler.h"
#include "device/cpu/cpu_share.h"
#include "model/micro_batch.h"
#include "optim/update.h"
#include "train/job.h"
#include "train/step_runner.h"
#include "train/totals.h"

namespace megatoken {

class Rank {
 public:
  // Collective over world. Allocates the state and loads the weights (or draws them).
  Rank(const Job& job, Group& world);

  const Job& job() const { return job_; }
  Group& world() const { return world_; }
  bool first() const { return world_.rank() == 0; }  // speaks for all
  int64 dp_rank() const { return job_.mesh.dp_rank(world_.rank()); }
  ShardedParameters& parameters() { return parameters_; }
  Stream& stream() { return *stream_; }
  Group& shards() const { return *shards_; }

  // Before a step of a model with a load-balancing loss, which is averaged over the step's micro-batches: counts these
  // and their targets, which the gradient will be divided by, over all ranks. Collective.
  void weigh_balance(const PreparedDataset& data, const StepRows& rows);
  // Runs one micro-batch of the dataset's rows (none: the collectives alone) and adds it to totals.
  void train(const PreparedDataset& data, std::span<const int64> rows, Totals& totals);
  void evaluate(const PreparedDataset& data, std::span<const int64> rows, Totals& totals);

  // Norm of the gradient of the sum of losses over all ranks, after adding up replicas. Collective.
  double gradient_norm();
  void update(const UpdateSettings& settings);

  // Told of each new iteration that compute comes to, by the path of its loop (ExecutingContext::watch).
  void watch(std::function<void(std::string_view loop)> watcher) { runner_.watch(std::move(watcher)); }

  // Keeps the timeline of what train(), gradient_norm() and update() run until it is taken.
  void record_timeline() { runner_.record_timeline(); }
  Timeline take_timeline() { return runner_.take_timeline(); }
  std::string device_name() const { return device_->name(); }

  // Of this rank's device, with what others that share it take.
  int64 device_bytes() const { return job_.plan.device_bytes() * job_.ranks_per_device; }

 private:
  void run_micro_batch(const PreparedDataset& data, std::span<const int64> rows, bool train, Totals& totals);
  ModelRun model_run() const;

  const Job& job_;
  Group& world_;
  std::optional<CpuShare> processors_;  // on the CPU; before anything that starts threads
  std::unique_ptr<Device> device_;
  std::shared_ptr<Group> shards_, cp_, replicas_;  // on the device; of world's ranks
  std::unique_ptr<Stream> stream_;                 // for loading and saving, outside of steps
  const OpTable& table_;
  ShardedParameters parameters_;
  StepRunner runner_;
  MicroBatch micro_batch_;
  double balance_scale_ = 0;
};

}  // namespace megatoken
