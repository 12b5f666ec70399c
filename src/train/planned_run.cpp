#include "train/planned_run.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "model/micro_batch.h"
#include "model/parameters.h"
#include "ops/op_table.h"
#include "optim/update.h"
#include "step/counting_context.h"

namespace megatoken {
namespace {

constexpr int64 kMiB = int64{1} << 20;

std::vector<Keep> expand(const LayerPin& pin, int64 layers, Keep automatic, const char* key) {
  if (pin.automatic()) return std::vector<Keep>(static_cast<std::size_t>(layers), automatic);
  std::vector<Keep> keep;
  for (const auto& run : pin.runs)
    keep.insert(keep.end(), static_cast<std::size_t>(run.layers < 0 ? layers : run.layers), run.keep);
  if (static_cast<int64>(keep.size()) != layers)
    throw ConfigError("{}: the runs name {} layers, the model has {}", key, keep.size(), layers);
  return keep;
}

// Rows of logits that take at most 256 MiB in float32.
int64 default_loss_tile(int64 vocab) {
  const int64 rows = 256 * kMiB / (4 * vocab);
  return std::clamp<int64>(rows / 64 * 64, 64, 4096);
}

class Planner {
 public:
  Planner(const RunShape& shape, const PlannerOptions& options, const ParallelOptions& parallel, const PlanBudget& budget)
      : shape_(shape),
        options_(options),
        parameters_(make_buckets(shape.model), shape.dtype, shape.mesh.shards(), 0, nullptr),
        table_(shape.on_cuda ? cuda_op_table() : cpu_op_table()) {
    planned_.budget = budget;
    planned_.policy = initial(parallel);
  }

  PlannedRun plan() {
    measure();
    for (const Move& move : moves()) {
      if (planned_.fits()) break;
      engage(move);
    }
    list_buffers();
    return std::move(planned_);
  }

 private:
  struct Move {
    std::string name;
    std::function<bool(Policy&)> apply;  // false: pinned, or nothing to change
  };

  Policy initial(const ParallelOptions& parallel) const {
    const ModelSpec& m = shape_.model;
    Policy p;
    p.token_tile = options_.token_tile.value_or(shape_.on_cuda ? 8192 : 1024);
    p.loss_tile = options_.loss_tile.value_or(default_loss_tile(m.vocab_size));
    p.kv_block = options_.kv_block.value_or(0);
    p.layer_input = expand(options_.layer_input, m.num_layers, Keep::device, "layer_input");
    p.attention_output = expand(options_.attention_output, m.num_layers, Keep::device, "attention_output");
    p.exchange = parallel.exchange.value_or(KvExchange::allgather);
    p.head_groups = 1;
    if (options_.head_group) {
      if (*options_.head_group < 1 || m.num_kv_heads % *options_.head_group != 0)
        throw ConfigError("head_group: {} does not divide the model's {} KV heads", *options_.head_group, m.num_kv_heads);
      p.head_groups = m.num_kv_heads / *options_.head_group;
    }
    return p;
  }

  std::vector<Move> moves() const {
    std::vector<Move> found;
    if (!options_.token_tile)
      for (const int64 tile : {4096, 2048, 1024, 512, 256})
        found.push_back({fmt::format("token tiles of {}", tile), [tile](Policy& p) {
                           if (p.token_tile <= tile) return false;
                           p.token_tile = tile;
                           return true;
                         }});
    if (!options_.loss_tile)
      for (const int64 tile : {256, 64})
        found.push_back({fmt::format("loss tiles of {}", tile), [tile](Policy& p) {
                           if (p.loss_tile <= tile) return false;
                           p.loss_tile = tile;
                           return true;
                         }});
    if (!options_.head_group)
      for (int64 groups = 2; groups <= shape_.model.num_kv_heads; ++groups)
        if (shape_.model.num_kv_heads % groups == 0)
          found.push_back({fmt::format("{} head groups", groups), [groups](Policy& p) {
                             p.head_groups = groups;
                             return true;
                           }});
    const bool host_helps = !planned_.budget.shared;
    if (options_.layer_input.automatic())
      found.push_back({host_helps ? "layer inputs to host" : "layer inputs recomputed", [host_helps](Policy& p) {
                         p.layer_input.assign(p.layer_input.size(), host_helps ? Keep::host : Keep::recompute);
                         return true;
                       }});
    if (options_.attention_output.automatic() && host_helps)
      found.push_back({"attention outputs to host", [](Policy& p) {
                         p.attention_output.assign(p.attention_output.size(), Keep::host);
                         return true;
                       }});
    if (options_.attention_output.automatic())
      for (int eighths = 1; eighths <= 8; ++eighths)
        found.push_back({fmt::format("attention recomputed in {}/8 of the layers", eighths), [eighths](Policy& p) {
                           const auto layers = static_cast<int64>(p.attention_output.size());
                           const int64 count = layers * eighths / 8;
                           for (int64 i = layers - count; i < layers; ++i)
                             p.attention_output[static_cast<std::size_t>(i)] = Keep::recompute;
                           return count > 0;
                         }});
    found.push_back({"nothing fetched ahead", [](Policy& p) {
                       p.prefetch = 0;
                       return true;
                     }});
    return found;
  }

  void engage(const Move& move) {
    const Policy before = planned_.policy;
    const int64 device = planned_.device_bytes(), host = planned_.host_bytes();
    if (!move.apply(planned_.policy)) return;
    measure();
    const int64 saves = device - planned_.device_bytes();
    const bool helps = planned_.budget.shared ? saves > planned_.host_bytes() - host : saves > 0 || planned_.host_bytes() < host;
    if (!helps) {
      planned_.policy = before;
      measure();
      return;
    }
    planned_.levers.push_back({move.name,
                               fmt::format("without it {:.2f} GiB on the device and {:.2f} GiB on the host",
                                           static_cast<double>(device) / static_cast<double>(1 << 30),
                                           static_cast<double>(host) / static_cast<double>(1 << 30)),
                               saves, 0});
  }

  void measure() {
    const ModelRun run{shape_.model, planned_.policy, parameters_};
    const auto count = [&](const std::vector<int64>& documents, auto program) {
      LocalBatch batch = make_planning_batch(shape_.model, planned_.policy, documents, shape_.mesh.cp, 0);
      return count_step([&](StepContext& ctx) {
        StepOps ops(ctx, table_);
        program(ops, run, batch);
      });
    };
    planned_.train = count(shape_.train_documents, train_micro_batch);
    if (!shape_.eval_documents.empty()) planned_.evaluation = count(shape_.eval_documents, evaluate_micro_batch);
    planned_.update = count_step([&](StepContext& ctx) {
      StepOps ops(ctx, table_);
      gradient_sum_squares(ops, parameters_);
      reduce_replicas(ops, parameters_, nullptr, shape_.mesh.dp_replicate);
      apply_update(ops, parameters_, {});
    });
    planned_.train_plan = pack(planned_.train);
    planned_.evaluation_plan = pack(planned_.evaluation);
    planned_.update_plan = pack(planned_.update);
    planned_.arena = arena_for({&planned_.train_plan, &planned_.evaluation_plan, &planned_.update_plan});
    planned_.state_bytes = parameters_.storage_bytes();
  }

  void list_buffers() {
    for (const auto& s : parameters_.storage()) planned_.buffers.push_back({s.name, Place::device, s.bytes});
    for (const Plan* plan : {&planned_.train_plan, &planned_.evaluation_plan, &planned_.update_plan})
      for (const PlannedSite& site : plan->sites()) planned_.buffers.push_back({site.name, site.place, site.bytes});
    std::stable_sort(planned_.buffers.begin(), planned_.buffers.end(),
                     [](const PlannedBuffer& a, const PlannedBuffer& b) { return a.bytes > b.bytes; });
  }

  const RunShape& shape_;
  const PlannerOptions& options_;
  ShardedParameters parameters_;
  const OpTable& table_;
  PlannedRun planned_;
};

}  // namespace

bool PlannedRun::fits() const {
  if (budget.shared) return device_bytes() + host_bytes() <= budget.host_bytes;
  return device_bytes() <= budget.device_bytes && host_bytes() <= budget.host_bytes;
}

PlanBudget budget_of(const PlannerOptions& options, const Machine& machine, int64 ranks_per_host, bool on_cuda) {
  PlanBudget budget;
  budget.shared = !on_cuda;
  budget.host_bytes = options.host_memory.value_or(machine.host_bytes) / std::max<int64>(ranks_per_host, 1);
  budget.device_bytes = options.device_memory.value_or(machine.device_bytes);
  if (!on_cuda && options.device_memory) budget.host_bytes = std::min(budget.host_bytes, *options.device_memory);
  return budget;
}

PlannedRun plan_run(const RunShape& shape, const PlannerOptions& options, const ParallelOptions& parallel,
                    const PlanBudget& budget) {
  return Planner(shape, options, parallel, budget).plan();
}

void require_fit(const PlannedRun& plan, const Mesh& mesh) {
  if (plan.fits()) return;
  const auto gib = [](int64 bytes) { return static_cast<double>(bytes) / static_cast<double>(int64{1} << 30); };
  const PlannedBuffer& largest = plan.buffers.front();
  throw FitError(
      "does not fit: {:.2f} GiB on the device and {:.2f} GiB on the host are needed, {:.2f} and {:.2f} GiB are there; the "
      "largest buffer is \"{}\" ({:.2f} GiB); use more ranks (num_processes, now {}), a smaller max_length or a larger budget",
      gib(plan.device_bytes()), gib(plan.host_bytes()), gib(plan.budget.device_bytes), gib(plan.budget.host_bytes),
      largest.name, gib(largest.bytes), mesh.size());
}

}  // namespace megatoken
