// What the planner chooses and says.
#include "train/planned_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "train/planner/nearest.h"
#include "train/planning_support.h"

namespace megatoken {
namespace {

using testing::HasSubstr;

RunShape gpu_shape(int64 length) {
  RunShape shape;
  shape.model = model_of(12, 4, 2, 512, true);
  shape.dtype = DType::bf16;
  shape.on_cuda = true;
  shape.train_documents = {length};
  return shape;
}

PlannedRun gpu_plan(const RunShape& shape, int64 device_mib, const PlannerOptions& options = {}) {
  return plan_run(shape, options, {}, {device_mib * kMiB, 64 * 1024 * kMiB, false}, default_rates(true, 1));
}

TEST(Planner, EachLeverIsSaidOnceWithWhatItSavesAndItsKey) {
  const RunShape shape = gpu_shape(1 << 18);
  const int64 whole = gpu_plan(shape, 100000).device_bytes() / kMiB;
  const PlannedRun plan = gpu_plan(shape, 700 + (whole - 700) / 4);
  ASSERT_TRUE(plan.fits());
  ASSERT_FALSE(plan.levers.empty());
  std::set<std::string> names;
  for (const Lever& lever : plan.levers) {
    EXPECT_TRUE(names.insert(lever.name).second) << lever.name;
    EXPECT_GT(lever.saves_bytes, 0) << lever.name;
    EXPECT_FALSE(lever.key.empty()) << lever.name;
    EXPECT_THAT(lever.reason, HasSubstr("without it"));
  }
}

TEST(Planner, PinsAreKept) {
  const RunShape shape = gpu_shape(1 << 18);
  PlannerOptions options;
  options.token_tile = 4096;
  options.head_group = 1;
  options.layer_input.runs = {{Keep::device, -1}};
  options.attention_output.runs = {{Keep::host, 5}, {Keep::recompute, 7}};
  options.gradients = PlaceChoice::host;
  options.parameters = PlaceChoice::device;
  for (const int64 mib : {100000, 3000, 100}) {
    const PlannedRun plan = gpu_plan(shape, mib, options);
    EXPECT_EQ(plan.policy.token_tile, 4096);
    EXPECT_EQ(plan.policy.head_groups, 4);
    EXPECT_EQ(plan.policy.layer_input, std::vector<Keep>(12, Keep::device));
    EXPECT_EQ(plan.policy.attention_output[4], Keep::host);
    EXPECT_EQ(plan.policy.attention_output[5], Keep::recompute);
    EXPECT_EQ(plan.places.gradients, Place::host);
    EXPECT_EQ(plan.places.weights, Place::device);
  }
}

TEST(Planner, WhatDoesNotFitIsRefusedWithWhatWould) {
  const RunShape shape = gpu_shape(1 << 20);
  const PlanBudget budget{1200 * kMiB, 2048 * kMiB, false};
  const PlannedRun plan = plan_run(shape, {}, {}, budget, default_rates(true, 1));
  ASSERT_FALSE(plan.fits());
  const std::string nearest = nearest_fit(shape, {}, {}, budget, default_rates(true, 1));
  EXPECT_THAT(nearest, HasSubstr("max_length"));
  try {
    require_fit(plan, [&] { return nearest; });
    FAIL();
  } catch (const FitError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the largest buffer is '"));
    EXPECT_THAT(error.what(), HasSubstr(nearest));
  }
  // The length it names fits, and twice that does not.
  RunShape at = shape;
  at.train_documents = {longest_fit(shape, {}, {}, budget, default_rates(true, 1), 64)};
  EXPECT_TRUE(plan_run(at, {}, {}, budget, default_rates(true, 1)).fits());
  at.train_documents = {2 * at.train_documents[0]};
  EXPECT_FALSE(plan_run(at, {}, {}, budget, default_rates(true, 1)).fits());
}

// Where nothing is short, lengths end at what can be counted.
TEST(Planner, AbsurdLengthsAreRefused) {
  RunShape shape = gpu_shape(int64{1} << 40);
  const PlanBudget endless{int64{1} << 60, int64{1} << 60, false};
  EXPECT_THROW(plan_run(shape, {}, {}, endless, default_rates(true, 1)), FitError);
  shape.model = model_of(2, 1, 1, 1 << 16, true);
  const int64 longest = longest_fit(shape, {}, {}, endless, default_rates(true, 1), 2);
  EXPECT_GT(longest, 1 << 20);
  shape.train_documents = {longest};
  EXPECT_TRUE(plan_run(shape, {}, {}, endless, default_rates(true, 1)).fits());
}

TEST(Planner, LargestFitFindsTheEdge) {
  for (const int64 edge : {0, 1, 2, 3, 100, 1000, 4096}) {
    EXPECT_EQ(largest_fit(4096, 1 << 20, [&](int64 n) { return n <= edge; }), edge);
    const int64 rough = largest_fit(4096, 16, [&](int64 n) { return n <= edge; });
    EXPECT_LE(rough, edge);
    EXPECT_GE(rough, edge - edge / 16 - 1);
  }
}

// Real models at real lengths on hosts of 2 TB with eight ranks, planned from any machine: inside these budgets, in the
// time that docs/planning.md promises, and on devices of 24 GiB.
TEST(Planner, LongSequencesOfRealModelsFit) {
  struct Row {
    const char* model;
    int64 tokens, ranks, device_gib;
    double seconds;  // at most, predicted
  };
  for (const Row& row : {Row{"qwen3-0.6b", 1 << 20, 8, 8, 105},
                         {"qwen3-8b", 1 << 20, 8, 18, 275},
                         {"qwen3-32b", 1 << 20, 8, 60, 985},
                         {"qwen3-32b", 1 << 20, 8, 24, 1075},
                         {"qwen3-0.6b", 1 << 22, 8, 24, 1640},
                         {"qwen3-8b", 1 << 21, 16, 20, 540},
                         {"qwen3-8b", 1 << 22, 32, 24, 1065},
                         {"qwen3-0.6b", 1 << 20, 8, 24, 105},
                         {"qwen3-8b", 1 << 20, 8, 24, 275},
                         {"qwen3-8b", 1 << 21, 16, 24, 540}}) {
    SCOPED_TRACE(fmt::format("{} {} tokens {} ranks {} GiB", row.model, row.tokens, row.ranks, row.device_gib));
    const PlanBudget budget{row.device_gib * kGiB, 2'000'000'000'000 / 8, false};
    const PlannedRun plan =
        plan_run(long_shape(row.model, row.tokens, row.ranks), {}, {}, budget, default_rates(true, 1));
    EXPECT_TRUE(plan.fits()) << plan.device_bytes() / kMiB << " MiB on the device, " << plan.host_bytes() / kMiB
                             << " on the host";
    EXPECT_LE(plan.step_time_s, row.seconds);
  }
}

}  // namespace
}  // namespace megatoken
