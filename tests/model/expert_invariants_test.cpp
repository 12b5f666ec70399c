// What may not change the results of a model with experts, with and without the load-balancing loss.
#include <gtest/gtest.h>

#include <ostream>

#include "model/invariants.h"

namespace megatoken {
namespace {

using test::Documents;
using test::documents_of;
using test::expect_equal;
using test::Outcome;
using test::random_ids;
using test::RunOptions;

constexpr double kAuxScale = 3.0;  // the loss' weight times the number of targets

ModelSpec spec_of(const std::string& family, double aux) {
  const std::string common = R"("vocab_size": 61, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 5,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512, "rope_theta": 1000.0,
    "initializer_range": 0.3, "num_experts_per_tok": 2, )";
  const std::string own =
      family == "qwen3_moe"
          ? R"("head_dim": 6, "num_experts": 7, "moe_intermediate_size": 12, "norm_topk_prob": true, "mlp_only_layers": [0, 3])"
      : family == "qwen2_moe"
          ? R"("num_experts": 5, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 10, "decoder_sparse_step": 2)"
          : R"("num_local_experts": 6)";
  ModelSpec spec = ModelSpec::from_config_json("{\"model_type\": \"" + family + "\", " + common + own + "}", "test");
  spec.experts.aux_loss_coef = aux;
  return spec;
}

// The families, without and with the load-balancing loss, routed by their weights and all to the first experts.
struct Model {
  const char* family;
  double aux;
  bool zero_routers;

  friend std::ostream& operator<<(std::ostream& out, const Model& model) {
    return out << model.family << ", auxiliary loss x " << model.aux << (model.zero_routers ? ", all to the same" : "");
  }
};

class ExpertInvariants : public testing::TestWithParam<Model> {
 protected:
  ModelSpec spec() const { return spec_of(GetParam().family, GetParam().aux); }
  Outcome run(const Policy& policy, const std::vector<Documents>& micro_batches, RunOptions options = {}) const {
    options.balance_scale = kAuxScale * GetParam().aux;
    options.zero_routers = GetParam().zero_routers;
    return test::run_model(spec(), "", policy, micro_batches, options);
  }
};

TEST_P(ExpertInvariants, RanksExchangeAndTilesDoNotMatter) {
  for (const auto& lengths : std::vector<std::vector<int64>>{{61}, {1}, {2}, {3, 50, 1, 2, 17}, {40, 0, 9}}) {
    const Documents documents = documents_of(lengths);
    const Outcome want = run(test::plain_policy(spec()), {documents});
    for (const int64 cp : {1, 2, 3, 8})
      for (const int64 tile : {0, 11}) {
        SCOPED_TRACE(fmt::format("{} documents of {} ..., cp {}, tile {}", lengths.size(), lengths[0], cp, tile));
        Policy policy = test::plain_policy(spec());
        policy.exchange = cp == 3 ? KvExchange::ring : KvExchange::allgather;
        policy.head_groups = tile == 0 ? 1 : 2;
        policy.token_tile = tile;
        expect_equal(run(policy, {documents}, {.cp = cp}), want);
      }
  }
}

// At the same tiles, where a tensor waits changes no bit; layers of two kinds are recomputed in their own segments.
TEST_P(ExpertInvariants, WhereThingsWaitChangesNoBit) {
  const std::vector<Documents> documents{documents_of({33, 20}), documents_of({7}, 7)};
  const Keep device = Keep::device, host = Keep::host, again = Keep::recompute;
  const std::vector<std::pair<std::vector<Keep>, std::vector<Keep>>> cases{
      {std::vector<Keep>(5, host), std::vector<Keep>(5, host)},
      {std::vector<Keep>(5, device), std::vector<Keep>(5, again)},
      {std::vector<Keep>(5, again), std::vector<Keep>(5, again)},
      {{host, host, again, again, again}, {host, device, device, again, again}},
  };
  for (const int64 cp : {1, 2})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Policy policy = test::plain_policy(spec());
      policy.token_tile = 16;
      const Outcome want = run(policy, documents, {.cp = cp, .dtype = dtype});
      for (std::size_t i = 0; i < cases.size(); ++i)
        for (const int64 segment : {2, 4}) {
          SCOPED_TRACE(fmt::format("case {} segments of {} cp {}", i, segment, cp));
          policy.layer_input = cases[i].first;
          policy.attention_output = cases[i].second;
          policy.recompute_segment = segment;
          policy.prefetch = segment == 2 ? 0 : 1;
          const Place place = segment == 2 ? Place::host : Place::device;
          const Outcome got =
              run(policy, documents,
                  {.cp = cp, .dtype = dtype, .places = {.optimizer = place, .gradients = place, .weights = place}});
          EXPECT_EQ(got.loss_sum, want.loss_sum);
          EXPECT_EQ(got.aux_loss, want.aux_loss);
          for (const auto& [name, values] : want.gradients) EXPECT_EQ(got.gradients.at(name), values) << name;
        }
    }
}

// Unlabelled tokens at the end change nothing but the load-balancing loss, which is of all tokens by definition.
TEST_P(ExpertInvariants, TheFutureDoesNotMatter) {
  if (GetParam().aux > 0) GTEST_SKIP() << "depends on length";
  const auto ids = random_ids(90, 5);
  const auto with_tail = [&](int64 tail) {
    Documents documents;
    const std::vector<std::int32_t> part(ids.begin(), ids.begin() + 30 + tail);
    std::vector<std::int32_t> labels = part;
    std::fill(labels.begin() + 30, labels.end(), -100);
    documents.add(part, labels);
    return run(test::plain_policy(spec()), {documents}, {.cp = 2});
  };
  const Outcome want = with_tail(0);
  for (const int64 tail : {1, 60}) expect_equal(with_tail(tail), want);
}

// A rank, or every rank, without labels; padding rows and empty micro-batches count nowhere.
TEST_P(ExpertInvariants, LabelsAnywhere) {
  for (const auto& [first, last] : std::vector<std::pair<int64, int64>>{{35, 41}, {1, 5}, {12, 14}, {0, 0}}) {
    const auto ids = random_ids(41, 5);
    std::vector<std::int32_t> labels(ids.size(), -100);
    for (int64 i = first; i < last; ++i) labels[static_cast<std::size_t>(i)] = ids[static_cast<std::size_t>(i)];
    Documents documents;
    documents.add(ids, labels);
    const Outcome want = run(test::plain_policy(spec()), {documents});
    for (const int64 cp : {2, 3}) {
      SCOPED_TRACE(fmt::format("labels {} to {}, cp {}", first, last, cp));
      const Outcome got = run(test::plain_policy(spec()), {documents, Documents{}}, {.cp = cp});
      expect_equal(got, want);
      for (const auto& [name, values] : got.gradients)
        for (const float v : values) ASSERT_TRUE(std::isfinite(v)) << name;
    }
  }
}

TEST_P(ExpertInvariants, ExpertsWithoutTokensHaveNoGradient) {
  const Documents documents = documents_of({50});
  const Outcome outcome = run(test::plain_policy(spec()), {documents}, {.cp = 2});
  const ExpertSpec experts = spec().experts;
  int64 idle = 0;
  for (const auto& [name, values] : outcome.gradients) {
    if (!name.ends_with("experts.gate_up_proj") && !name.ends_with("experts.down_proj")) continue;
    const auto size = values.size() / static_cast<std::size_t>(experts.count);
    for (int64 e = 0; e < experts.count; ++e) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(e) * size);
      const bool zero = std::all_of(begin, begin + static_cast<std::ptrdiff_t>(size), [](float v) { return v == 0; });
      if (GetParam().zero_routers) {
        EXPECT_EQ(zero, e >= experts.per_token) << name << " expert " << e;
      }
      idle += zero ? 1 : 0;
    }
  }
  if (GetParam().zero_routers) {
    EXPECT_GT(idle, 0);
  }
}

// Micro-batches of one row are the same whether they are taken one after the other or on several ranks; the loss of
// their targets alone doesn't depend on how rows are batched.
TEST_P(ExpertInvariants, BatchingDoesNotMatter) {
  const std::vector<int64> lengths{33, 4, 50, 9};
  std::vector<Documents> single;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    single.push_back(documents_of({lengths[i]}, 100 + static_cast<unsigned>(i)));
  const Outcome apart = run(test::plain_policy(spec()), single);
  const Outcome together = run(test::plain_policy(spec()), {documents_of(lengths)});
  EXPECT_LE(std::abs(apart.loss_sum - together.loss_sum), 1e-5 * together.loss_sum);
  if (GetParam().aux == 0) expect_equal(apart, together);
  expect_equal(run(test::plain_policy(spec()), single, {.cp = 3}), apart);
}

INSTANTIATE_TEST_SUITE_P(Families, ExpertInvariants,
                         testing::Values(Model{"qwen3_moe", 0, false}, Model{"qwen3_moe", 0.01, false},
                                         Model{"qwen3_moe", 0.01, true}, Model{"mixtral", 0.01, false},
                                         Model{"qwen2_moe", 0.01, false}, Model{"qwen2_moe", 0, true}),
                         [](const auto& row) {
                           return std::string(row.param.family) + (row.param.aux > 0 ? "_balanced" : "") +
                                  (row.param.zero_routers ? "_one_sided" : "");
                         });

// Weights come and go in either layout, in pieces of any number of ranks; what is wrong is named.
TEST(ExpertWeights, RandomWeightsDoNotDependOnTheLayout) {
  ModelSpec fused = spec_of("mixtral", 0);
  fused.expert_layout = ExpertLayout::fused;
  const Documents documents = documents_of({30});
  const Outcome a = test::run_model(fused, "", test::plain_policy(fused), {documents});
  const Outcome b = test::run_model(spec_of("mixtral", 0), "", test::plain_policy(fused), {documents});
  EXPECT_EQ(a.loss_sum, b.loss_sum);
}

}  // namespace
}  // namespace megatoken
