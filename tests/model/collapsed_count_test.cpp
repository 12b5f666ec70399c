// What the planner counts once and multiplies is what counting every layer, head group, phase and tile yields.
#include <gtest/gtest.h>

#include "model/run_model.h"
#include "ops/op_table.h"
#include "step/counting_context.h"

namespace megatoken {
namespace {

ModelSpec model(int64 layers) {
  return ModelSpec::from_config_json(
      fmt::format(R"({{"model_type": "qwen3", "vocab_size": 61, "hidden_size": 24, "intermediate_size": 40,
    "num_hidden_layers": {}, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 6, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": true, "max_position_embeddings": 512, "rope_theta": 10000.0, "hidden_act": "silu",
    "attention_bias": false}})",
                  layers),
      "test");
}

void expect_collapsed_as_flat(const ModelSpec& spec, const Policy& policy, const std::vector<int64>& lengths, int64 cp,
                              int64 rank, const StatePlaces& places = {}) {
  const ShardedParameters parameters(make_buckets(spec), DType::bf16, cp, 0, nullptr, places);
  const ModelRun run{spec, policy, parameters};
  const auto count = [&](bool collapse) {
    LocalBatch batch = make_planning_batch(spec, policy, lengths, cp, rank);
    return count_step(
        [&](StepContext& ctx) {
          StepOps ops(ctx, counting_op_table(true));
          train_micro_batch(ops, run, batch);
        },
        collapse);
  };
  const CountedStep collapsed = count(true), flat = count(false);
  EXPECT_EQ(collapsed.peak_live_bytes, flat.peak_live_bytes);
  EXPECT_EQ(pack(collapsed).misfit(flat), std::nullopt);
  const WorkTotals once = total_work(collapsed), all = total_work(flat);
  for (std::size_t k = 0; k < kNumWorkKinds; ++k) {
    EXPECT_EQ(once.by_kind[k].ops, all.by_kind[k].ops);
    EXPECT_EQ(once.by_kind[k].flops, all.by_kind[k].flops);
    EXPECT_EQ(once.by_kind[k].bytes, all.by_kind[k].bytes);
  }
}

TEST(CollapsedCount, EqualsTheFlatOneForEveryExchangeAndRank) {
  const ModelSpec spec = model(9);
  for (const int64 cp : {1, 2, 5, 8, 16, 24})
    for (const KvExchange exchange : {KvExchange::allgather, KvExchange::ring})
      for (const int64 groups : {1, 8})
        for (const int64 rank : {int64{0}, cp / 2}) {
          SCOPED_TRACE(fmt::format("cp {}, {}, {} groups, rank {}", cp,
                                   exchange == KvExchange::ring ? "ring" : "allgather", groups, rank));
          Policy policy = test::plain_policy(spec);
          policy.exchange = exchange;
          policy.head_groups = groups;
          policy.token_tile = 16;
          policy.kv_block = 48;
          expect_collapsed_as_flat(spec, policy, {1531}, cp, rank);
        }
}

TEST(CollapsedCount, EqualsTheFlatOneForSegments) {
  // Few layers leave little to wait for between the head's gradients and the embedding's, which share buffers.
  for (const int64 layers : {1, 2, 5, 37})
    for (const int64 segment : {2, 3, 4})
      for (const Keep kept : {Keep::device, Keep::host})
        for (const int64 prefetch : {0, 1}) {
          const ModelSpec spec = model(layers);
          SCOPED_TRACE(fmt::format("{} layers in segments of {}, first inputs on {}, prefetch {}", layers, segment,
                                   kept == Keep::host ? "the host" : "the device", prefetch));
          Policy policy = test::plain_policy(spec);
          policy.layer_input.assign(static_cast<std::size_t>(layers), Keep::recompute);
          policy.attention_output.assign(static_cast<std::size_t>(layers), Keep::host);
          policy.recompute_segment = segment;
          policy.segment_input = kept;
          policy.prefetch = prefetch;
          for (const Place state : {Place::device, Place::host})
            for (const int64 cp : {1, 2}) expect_collapsed_as_flat(spec, policy, {64, 3}, cp, 0, {state, state, state});
        }
}

}  // namespace
}  // namespace megatoken
