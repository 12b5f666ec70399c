// What the planner chooses and says.
#include "train/planned_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "train/machine_rates.h"
#include "train/planner/nearest.h"

namespace megatoken {
namespace {

using testing::HasSubstr;

constexpr int64 kMiB = int64{1} << 20;

ModelSpec model(int64 layers, int64 kv_heads, int64 heads_per_kv, int64 hidden, bool tied) {
  return ModelSpec::from_config_json(
      fmt::format(R"({{"model_type": "qwen3", "vocab_size": 4096, "hidden_size": {}, "intermediate_size": {},
        "num_hidden_layers": {}, "num_attention_heads": {}, "num_key_value_heads": {}, "head_dim": 64, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": {}, "max_position_embeddings": 512, "rope_theta": 10000.0, "hidden_act": "silu",
        "attention_bias": false}})",
                  hidden, 3 * hidden, layers, kv_heads * heads_per_kv, kv_heads, tied),
      "test");
}

RunShape gpu_shape(int64 length) {
  RunShape shape;
  shape.model = model(12, 4, 2, 512, true);
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

TEST(Planner, LargestFitFindsTheEdge) {
  for (const int64 edge : {0, 1, 2, 3, 100, 1000, 4096}) {
    EXPECT_EQ(largest_fit(4096, 1 << 20, [&](int64 n) { return n <= edge; }), edge);
    const int64 rough = largest_fit(4096, 16, [&](int64 n) { return n <= edge; });
    EXPECT_LE(rough, edge);
    EXPECT_GE(rough, edge - edge / 16 - 1);
  }
}

// Real models at real lengths: inside these budgets on hosts of 2 TB with eight ranks, planned from any machine.
TEST(Planner, LongSequencesOfRealModelsFit) {
  struct Row {
    const char* model;
    int64 tokens, ranks, device_gib;
  };
  for (const Row& row : {Row{"qwen3-0.6b", 1 << 20, 8, 8},
                         {"qwen3-8b", 1 << 20, 8, 18},
                         {"qwen3-32b", 1 << 20, 8, 60},
                         {"qwen3-32b", 1 << 20, 8, 24},
                         {"qwen3-0.6b", 1 << 22, 8, 24},
                         {"qwen3-8b", 1 << 21, 16, 20},
                         {"qwen3-8b", 1 << 22, 32, 24},
                         {"qwen3-8b", 1 << 20, 8, 24}}) {
    SCOPED_TRACE(fmt::format("{} {} tokens {} ranks", row.model, row.tokens, row.ranks));
    RunShape shape;
    shape.model = ModelSpec::from_directory(std::string(MEGATOKEN_TEST_DATA) + "/../bench/models/" + row.model);
    shape.mesh.cp = row.ranks;
    shape.dtype = DType::bf16;
    shape.on_cuda = true;
    shape.train_documents = {row.tokens};
    const PlanBudget budget{row.device_gib * 1024 * kMiB, 2'000'000'000'000 / 8, false};
    const PlannedRun plan = plan_run(shape, {}, {}, budget, default_rates(true, 1));
    EXPECT_TRUE(plan.fits()) << plan.device_bytes() / kMiB << " MiB on the device, " << plan.host_bytes() / kMiB
                             << " on the host";
  }
}

}  // namespace
}  // namespace megatoken
