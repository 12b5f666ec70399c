#include "train/planned_run.h"

#include <algorithm>
#include <functional>
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

// What one rank takes in host memory beside the plan: code and libraries once they have run, scratch of the products and
// attention tiles, pieces of weights on their way in and out. Measured as VmHWM of short trainings less that of `plan`.
constexpr int64 kHostFixedBytes = 18 * kMiB;

std::vector<Keep> expand(const LayerPin& pin, int64 layers, Keep automatic, const char* key) {
  if (pin.automatic()) return std::vector<Keep>(static_cast<std::size_t>(layers), automatic);
  std::vector<Keep> keep;
  for (const auto& run : pin.runs)
    keep.insert(keep.end(), static_cast<std::size_t>(run.layers < 0 ? layers : run.layers), run.keep);
  if (static_cast<int64>(keep.size()) != layers)
    throw ConfigError("{}: the runs name {} layers, the model has {}", key, keep.size(), layers);
  return keep;
}

// A GPU wants few, large tiles: each adds a pass over the weights' gradients, and small products leave it half empty.
constexpr int64 kCudaTokenTile = 32768;
constexpr int64 kCpuTokenTile = 1024;

// Rows of logits that take at most 256 MiB in float32 on the CPU. On a GPU 2048: each tile adds a pass over the head's
// gradient, and the layers' buffers need more than these logits anyway.
int64 default_loss_tile(int64 vocab, bool on_cuda) {
  if (on_cuda) return 2048;
  const int64 rows = 256 * kMiB / (4 * vocab);
  return std::clamp<int64>(rows / 64 * 64, 64, 4096);
}

class Planner {
 public:
  Planner(const RunShape& shape, const PlannerOptions& options, const ParallelOptions& parallel, const PlanBudget& budget,
          const MachineRates& rates)
      : shape_(shape),
        options_(options),
        rates_(rates),
        buckets_(make_buckets(shape.model)),
        table_(shape.on_cuda ? cuda_op_table() : cpu_op_table()) {
    planned_.budget = budget;
    planned_.fixed_bytes = shape.on_cuda ? cuda_fixed_bytes() : 0;
    planned_.host_fixed_bytes = kHostFixedBytes;
    planned_.policy = initial(parallel);
    if (options.optimizer_state == PlaceChoice::host) planned_.places.moments = Place::host;
  }

  PlannedRun plan() {
    measure(planned_);
    std::vector<Move> engaged;
    for (const Move& move : moves()) {
      if (planned_.fits()) break;
      PlannedRun next = planned_;
      if (!move.apply(next)) continue;
      measure(next);
      if (!better(next)) continue;
      planned_ = std::move(next);
      engaged.push_back(move);
    }
    release(engaged);
    list_buffers();
    return std::move(planned_);
  }

 private:
  struct Move {
    std::string name;
    std::function<bool(PlannedRun&)> apply;  // false: nothing to change
    std::function<void(PlannedRun&, const PlannedRun& initial)> undo;
  };

  Policy initial(const ParallelOptions& parallel) const {
    const ModelSpec& m = shape_.model;
    Policy p;
    p.token_tile = options_.token_tile.value_or(shape_.on_cuda ? kCudaTokenTile : kCpuTokenTile);
    p.loss_tile = options_.loss_tile.value_or(default_loss_tile(m.vocab_size, shape_.on_cuda));
    p.kv_block = options_.kv_block.value_or(shape_.on_cuda ? 65536 : 0);  // docs/cudnn.md, rule 6
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

  // In the order in which they are engaged: what costs least per byte first.
  std::vector<Move> moves() const {
    std::vector<Move> found;
    const auto tile = [&](int64 rows) {
      if (options_.token_tile) return;
      found.push_back({fmt::format("token tiles of {}", rows),
                       [rows](PlannedRun& r) { return std::exchange(r.policy.token_tile, std::min(r.policy.token_tile, rows)) > rows; },
                       [](PlannedRun& r, const PlannedRun& i) { r.policy.token_tile = i.policy.token_tile; }});
    };
    const auto loss = [&](int64 rows) {
      if (options_.loss_tile) return;
      found.push_back({fmt::format("loss tiles of {}", rows),
                       [rows](PlannedRun& r) { return std::exchange(r.policy.loss_tile, std::min(r.policy.loss_tile, rows)) > rows; },
                       [](PlannedRun& r, const PlannedRun& i) { r.policy.loss_tile = i.policy.loss_tile; }});
    };
    tile(16384);
    loss(1024);
    tile(8192);
    tile(4096);
    tile(2048);
    loss(512);
    if (!options_.head_group)
      for (int64 groups = 2; groups <= shape_.model.num_kv_heads; ++groups)
        if (shape_.model.num_kv_heads % groups == 0)
          found.push_back({fmt::format("{} head groups", groups),
                           [groups](PlannedRun& r) {
                             r.policy.head_groups = groups;
                             return true;
                           },
                           [](PlannedRun& r, const PlannedRun& i) { r.policy.head_groups = i.policy.head_groups; }});
    const bool host_helps = !planned_.budget.shared;
    const auto undo_input = [](PlannedRun& r, const PlannedRun& i) { r.policy.layer_input = i.policy.layer_input; };
    const auto undo_output = [](PlannedRun& r, const PlannedRun& i) { r.policy.attention_output = i.policy.attention_output; };
    if (host_helps && options_.layer_input.automatic())
      found.push_back({"layer inputs to host",
                       [](PlannedRun& r) {
                         r.policy.layer_input.assign(r.policy.layer_input.size(), Keep::host);
                         return true;
                       },
                       undo_input});
    if (host_helps && options_.attention_output.automatic())
      for (int quarters = 1; quarters <= 4; ++quarters)
        found.push_back({fmt::format("attention outputs of {}/4 of the layers to host", quarters),
                         [quarters](PlannedRun& r) { return assign_share(r.policy.attention_output, quarters, 4, Keep::host); },
                         undo_output});
    if (host_helps && options_.optimizer_state == PlaceChoice::automatic)
      found.push_back({"optimizer state to host",
                       [](PlannedRun& r) {
                         r.places.moments = Place::host;
                         return true;
                       },
                       [](PlannedRun& r, const PlannedRun& i) { r.places = i.places; }});
    for (const int64 rows : {1024, 512, 256}) tile(rows);
    loss(64);
    if (options_.layer_input.automatic())
      found.push_back({"layer inputs recomputed from every fourth layer's",
                       [](PlannedRun& r) {
                         r.policy.layer_input.assign(r.policy.layer_input.size(), Keep::recompute);
                         return true;
                       },
                       undo_input});
    found.push_back({"nothing fetched ahead",
                     [](PlannedRun& r) { return std::exchange(r.policy.prefetch, 0) != 0; },
                     [](PlannedRun& r, const PlannedRun& i) { r.policy.prefetch = i.policy.prefetch; }});
    if (options_.attention_output.automatic())
      for (int eighths = 1; eighths <= 8; ++eighths)
        found.push_back({fmt::format("attention run again in {}/8 of the layers", eighths),
                         [eighths](PlannedRun& r) { return assign_share(r.policy.attention_output, eighths, 8, Keep::recompute); },
                         undo_output});
    return found;
  }

  // The last share of the layers, in one run.
  static bool assign_share(std::vector<Keep>& layers, int part, int whole, Keep keep) {
    const auto count = static_cast<int64>(layers.size()) * part / whole;
    std::fill(layers.end() - count, layers.end(), keep);
    return count > 0;
  }

  // By how much the budgets are exceeded.
  static int64 excess(const PlannedRun& r) {
    if (r.budget.shared) return std::max<int64>(0, r.device_bytes() + r.host_bytes() - r.budget.host_bytes);
    return std::max<int64>(0, r.device_bytes() - r.budget.device_bytes) + std::max<int64>(0, r.host_bytes() - r.budget.host_bytes);
  }
  bool better(const PlannedRun& next) const {
    if (next.budget.shared) return excess(next) < excess(planned_);
    // A move that relieves the device may overfill the host: a later one can relieve that.
    return next.device_bytes() < planned_.device_bytes() || excess(next) < excess(planned_);
  }

  // Takes back, in the order they were engaged, the levers that turned out not to be needed, and says what the others did.
  void release(const std::vector<Move>& engaged) {
    if (!planned_.fits()) return explain(engaged);
    PlannedRun initial = planned_;
    initial.policy = Planner::initial(options_exchange());
    initial.places = options_.optimizer_state == PlaceChoice::host ? StatePlaces{Place::host} : StatePlaces{};
    std::vector<Move> kept;
    for (const Move& move : engaged) {
      PlannedRun without = planned_;
      move.undo(without, initial);
      measure(without);
      if (without.fits() && without.step_time_s <= planned_.step_time_s)
        planned_ = std::move(without);
      else
        kept.push_back(move);
    }
    std::erase_if(kept, [&](const Move& move) {  // an earlier rung of a ladder that a later one replaced, or taken back
      PlannedRun again = planned_;
      move.undo(again, initial);
      return again.policy.token_tile == planned_.policy.token_tile && again.policy.loss_tile == planned_.policy.loss_tile &&
             again.policy.head_groups == planned_.policy.head_groups && again.policy.layer_input == planned_.policy.layer_input &&
             again.policy.attention_output == planned_.policy.attention_output &&
             again.policy.prefetch == planned_.policy.prefetch && again.places.moments == planned_.places.moments;
    });
    explain(kept, &initial);
  }

  ParallelOptions options_exchange() const {
    ParallelOptions parallel;
    parallel.exchange = planned_.policy.exchange;
    return parallel;
  }

  // What each lever saves and costs: the plan without it, the others kept.
  void explain(const std::vector<Move>& levers, const PlannedRun* initial = nullptr) {
    std::vector<Lever> found;
    for (std::size_t i = 0; i < levers.size(); ++i) {
      Lever lever{levers[i].name, "needed to fit", 0, 0};
      if (initial != nullptr) {
        PlannedRun without = planned_;
        levers[i].undo(without, *initial);
        measure(without);
        lever.saves_bytes = without.device_bytes() - planned_.device_bytes();
        lever.costs_s = planned_.step_time_s - without.step_time_s;
        const auto gib = [](int64 bytes) { return static_cast<double>(bytes) / static_cast<double>(int64{1} << 30); };
        lever.reason = fmt::format("without it {:.2f} GiB on the device and {:.2f} GiB on the host", gib(without.device_bytes()),
                                   gib(without.host_bytes()));
        if (lever.saves_bytes == 0 && lever.costs_s == 0) continue;
      }
      found.push_back(std::move(lever));
    }
    planned_.levers = std::move(found);
  }

  void measure(PlannedRun& planned) const {
    const ShardedParameters parameters(buckets_, shape_.dtype, shape_.mesh.shards(), 0, nullptr, planned.places);
    const ModelRun run{shape_.model, planned.policy, parameters};
    const auto count = [&](const std::vector<int64>& documents, auto program) {
      LocalBatch batch = make_planning_batch(shape_.model, planned.policy, documents, shape_.mesh.cp, 0);
      return count_step([&](StepContext& ctx) {
        StepOps ops(ctx, table_);
        program(ops, run, batch);
      });
    };
    planned.train = count(shape_.train_documents, train_micro_batch);
    if (!shape_.eval_documents.empty()) planned.evaluation = count(shape_.eval_documents, evaluate_micro_batch);
    planned.update = count_step([&](StepContext& ctx) {
      StepOps ops(ctx, table_);
      gradient_sum_squares(ops, parameters);
      reduce_replicas(ops, parameters, nullptr, shape_.mesh.dp_replicate);
      apply_update(ops, parameters, {});
    });
    planned.train_plan = pack(planned.train);
    planned.evaluation_plan = pack(planned.evaluation);
    planned.update_plan = pack(planned.update);
    planned.arena = arena_for({&planned.train_plan, &planned.evaluation_plan, &planned.update_plan});
    planned.state_bytes = parameters.storage_bytes(Place::device);
    planned.host_state_bytes = parameters.storage_bytes(Place::host);
    planned.train_price = price(planned.train, rates_);
    planned.step_time_s = static_cast<double>(shape_.micro_batches) * planned.train_price.total_s + price(planned.update, rates_).total_s;
  }

  void list_buffers() {
    const ShardedParameters parameters(buckets_, shape_.dtype, shape_.mesh.shards(), 0, nullptr, planned_.places);
    for (const auto& s : parameters.storage()) planned_.buffers.push_back({s.name, s.place, s.bytes});
    planned_.buffers.push_back({"program, libraries and scratch", Place::host, planned_.host_fixed_bytes});
    if (planned_.fixed_bytes > 0) planned_.buffers.push_back({"CUDA context and libraries", Place::device, planned_.fixed_bytes});
    for (const Plan* plan : {&planned_.train_plan, &planned_.evaluation_plan, &planned_.update_plan})
      for (const PlannedSite& site : plan->sites()) planned_.buffers.push_back({site.name, site.place, site.bytes});
    std::stable_sort(planned_.buffers.begin(), planned_.buffers.end(),
                     [](const PlannedBuffer& a, const PlannedBuffer& b) { return a.bytes > b.bytes; });
  }

  const RunShape& shape_;
  const PlannerOptions& options_;
  const MachineRates& rates_;
  std::vector<BucketSpec> buckets_;
  const OpTable& table_;
  PlannedRun planned_;
};

}  // namespace

MachineRates default_rates(bool on_cuda, int64 cores_per_rank) {
  MachineRates rates;
  if (on_cuda) {
    rates.gemm_flops = 661e12;
    rates.attention_forward_flops = 590e12;
    rates.attention_backward_flops = 535e12;
    rates.memory_bytes = 3.9e12;
    rates.h2d_bytes = 54e9;
    rates.d2h_bytes = 55e9;
    rates.duplex_bytes = 92e9;
    rates.exchange_bytes = 300e9;
    rates.op_overhead_s = 4e-6;
    return rates;
  }
  const auto cores = static_cast<double>(std::max<int64>(cores_per_rank, 1));
  rates.gemm_flops = 60e9 * cores;
  rates.attention_forward_flops = 40e9 * cores;
  rates.attention_backward_flops = 40e9 * cores;
  rates.memory_bytes = 8e9 * cores;
  rates.h2d_bytes = rates.d2h_bytes = 5e9;
  rates.duplex_bytes = 8e9;
  rates.exchange_bytes = 2e9;
  rates.op_overhead_s = 2e-6;
  return rates;
}

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
                    const PlanBudget& budget, const MachineRates& rates) {
  return Planner(shape, options, parallel, budget, rates).plan();
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
