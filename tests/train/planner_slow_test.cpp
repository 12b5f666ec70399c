// Properties of plans over many random configurations.
#include "train/planned_run.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "train/planning_support.h"

namespace megatoken {
namespace {

class Configurations {
 public:
  explicit Configurations(unsigned seed) : random_(seed) {}

  int64 pick(std::initializer_list<int64> values) { return *(values.begin() + random_() % values.size()); }

  RunShape shape() {
    RunShape shape;
    shape.model =
        model_of(pick({1, 2, 5, 9, 13}), pick({1, 2, 4}), pick({1, 2, 4}), pick({64, 128, 256}), pick({0, 1}) == 1);
    shape.mesh.cp = pick({1, 1, 2, 4, 8});
    shape.mesh.dp_shard = pick({1, 1, 2});
    shape.mesh.dp_replicate = pick({1, 1, 2});
    shape.on_cuda = pick({0, 1, 1}) == 1;
    shape.dtype = shape.on_cuda || pick({0, 1}) == 1 ? DType::bf16 : DType::f32;
    for (int64 n = pick({1, 1, 3}); n > 0; --n) shape.train_documents.push_back(pick({1, 17, 1000, 16384, 65536}));
    if (pick({0, 1}) == 1) shape.eval_documents.push_back(pick({100, 30000}));
    shape.micro_batches = pick({1, 4});
    return shape;
  }

  PlannedRun plan(const RunShape& shape, const PlanBudget& budget, const PlannerOptions& options = {}) const {
    return plan_run(shape, options, {}, budget, default_rates(shape.on_cuda, 2));
  }

  // What nothing is short of.
  static PlanBudget plenty(const RunShape& shape) { return {int64{1} << 44, int64{1} << 44, !shape.on_cuda}; }

  // Part of what the unconstrained plan takes.
  PlanBudget share(const PlannedRun& whole, double device, double host) const {
    PlanBudget budget = whole.budget;
    const auto part = [](int64 bytes, double of) { return static_cast<int64>(static_cast<double>(bytes) * of); };
    budget.device_bytes = whole.fixed_bytes + part(whole.device_bytes() - whole.fixed_bytes, device);
    budget.host_bytes =
        whole.host_fixed_bytes + part(whole.device_bytes() - whole.fixed_bytes, budget.shared ? device : host);
    return budget;
  }

 private:
  std::mt19937 random_;
};

TEST(Planner, LiveBuffersNeverOverlapAndBudgetsAreMet) {
  Configurations random(1);
  int fitting = 0, recomputing = 0, several_ranks = 0, several_documents = 0;
  std::map<std::string, int> engaged;  // plans that fit, by the keys of their levers
  for (int i = 0; i < 400; ++i) {
    const RunShape shape = random.shape();
    const PlannedRun whole = random.plan(shape, Configurations::plenty(shape));
    EXPECT_TRUE(whole.levers.empty());
    for (const auto& [device, host] : {std::pair(0.7, 0.8), {0.3, 0.8}, {0.3, 0.3}, {0.1, 0.8}}) {
      const PlannedRun plan = random.plan(shape, random.share(whole, device, host));
      SCOPED_TRACE(fmt::format("configuration {}, {} and {} of the bytes", i, device, host));
      EXPECT_EQ(plan.train_plan.misfit(plan.train), std::nullopt);
      EXPECT_EQ(plan.evaluation_plan.misfit(plan.evaluation), std::nullopt);
      EXPECT_EQ(plan.update_plan.misfit(plan.update), std::nullopt);
      for (const Plan* p : {&plan.train_plan, &plan.evaluation_plan, &plan.update_plan})
        for (const Place place : {Place::device, Place::host})
          EXPECT_LE(p->arena_bytes(place), plan.arena[static_cast<std::size_t>(place)]);
      if (!plan.fits()) continue;
      ++fitting;
      several_ranks += shape.mesh.cp > 1 && shape.mesh.dp_shard > 1 ? 1 : 0;
      several_documents += shape.train_documents.size() > 1 ? 1 : 0;
      for (const Lever& lever : plan.levers) {
        ++engaged[lever.key];
        recomputing += lever.name.find("recomputed") != std::string::npos ? 1 : 0;
      }
      if (!plan.budget.shared) {
        EXPECT_LE(plan.device_bytes(), plan.budget.device_bytes);
        EXPECT_LE(plan.host_bytes(), plan.budget.host_bytes);
      } else {
        EXPECT_LE(plan.device_bytes() + plan.host_bytes(), plan.budget.host_bytes);
      }
    }
  }
  EXPECT_GT(fitting, 300);
  EXPECT_GT(recomputing, 20);
  EXPECT_GT(several_ranks, 20);
  EXPECT_GT(several_documents, 100);
  for (const char* key :
       {"token_tile", "loss_tile", "head_group", "kv_block", "layer_input", "attention_output", "optimizer_state",
        "gradients", "parameters", "prefetch", "parallelism_config_cp_comm_strategy"})
    EXPECT_GE(engaged[key], 5) << key << " was engaged too rarely for this test to say anything about it";
}

// To within what the planner takes for equal.
TEST(Planner, MoreMemoryIsNeverSlowerAndAlwaysFits) {
  constexpr double kSlack = 1.01;
  Configurations random(2);
  for (int i = 0; i < 150; ++i) {
    const RunShape shape = random.shape();
    const PlannedRun whole = random.plan(shape, Configurations::plenty(shape));
    // More on the device, and, with little there, more on the host.
    const std::vector<std::pair<double, double>> devices{{0.1, 1}, {0.25, 1}, {0.5, 1}, {0.8, 1}, {1, 1}};
    const std::vector<std::pair<double, double>> hosts{{0.3, 0.1}, {0.3, 0.25}, {0.3, 0.5}, {0.3, 1}};
    for (const auto& shares : {devices, hosts}) {
      double before = std::numeric_limits<double>::infinity();
      bool fitted = false;
      for (const auto& [device, host] : shares) {
        SCOPED_TRACE(fmt::format("configuration {}, {} and {} of the bytes", i, device, host));
        const PlannedRun plan = random.plan(shape, random.share(whole, device, host));
        EXPECT_TRUE(plan.fits() || !fitted);
        if (!plan.fits()) continue;
        fitted = true;
        EXPECT_LE(plan.step_time_s, kSlack * before);
        before = plan.step_time_s;
      }
      EXPECT_LE(whole.step_time_s, kSlack * before);
    }
  }
}

TEST(Planner, ALongerSequenceIsNeverSmaller) {
  Configurations random(3);
  for (int i = 0; i < 150; ++i) {
    SCOPED_TRACE(i);
    RunShape shape = random.shape();
    PlannedRun before;
    for (const int64 length : {100, 5000, 20000, 90000}) {
      shape.train_documents.assign(shape.train_documents.size(), length);
      const PlannedRun plan = random.plan(shape, Configurations::plenty(shape));
      EXPECT_GE(plan.train.live_bytes(Place::device), before.train.live_bytes(Place::device));
      EXPECT_GE(plan.step_time_s, before.step_time_s);
      before = plan;
    }
    // Whatever a length fits into, half of it fits into.
    const PlanBudget budget = random.share(before, 0.2, 0.5);
    bool fitted = false;
    for (const int64 length : {90000, 45000, 22500, 11000}) {
      shape.train_documents.assign(shape.train_documents.size(), length);
      const bool fits = random.plan(shape, budget).fits();
      EXPECT_TRUE(fits || !fitted) << length;
      fitted |= fits;
    }
  }
}

}  // namespace
}  // namespace megatoken
