// What may not change a result: ranks, exchange, policies, batching, unlabelled tokens at the end, where labels are.
#include <gtest/gtest.h>

#include "model/invariants.h"

namespace megatoken {
namespace {

using test::Documents;
using test::documents_of;
using test::expect_equal;
using test::Outcome;
using test::random_ids;
using test::RunOptions;

ModelSpec small_model() {
  return ModelSpec::from_config_json(R"({"model_type": "qwen3", "vocab_size": 61, "hidden_size": 24,
    "intermediate_size": 40, "num_hidden_layers": 7, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 6,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": true, "max_position_embeddings": 512, "rope_theta": 10000.0,
    "initializer_range": 0.2, "hidden_act": "silu", "attention_bias": false})",
                                     "test");
}

Outcome run(const Policy& policy, const Documents& documents, const RunOptions& options = {}) {
  return test::run_model(small_model(), "", policy, {documents}, options);
}

TEST(Invariants, RanksAndExchangeDoNotMatter) {
  for (const auto& lengths : std::vector<std::vector<int64>>{{64}, {61}, {7}, {1}, {2}, {3, 50, 1, 2, 17}, {40, 0, 9}}) {
    const Documents documents = documents_of(lengths);
    const Outcome want = run(test::plain_policy(small_model()), documents);
    for (const int64 cp : {2, 3, 4, 8})
      for (const KvExchange exchange : {KvExchange::allgather, KvExchange::ring})
        for (const int64 groups : {1, 2, 4}) {
          SCOPED_TRACE(fmt::format("{} documents of {} ..., cp {}, {}, {} head groups", lengths.size(), lengths[0], cp,
                                   exchange == KvExchange::ring ? "ring" : "allgather", groups));
          Policy policy = test::plain_policy(small_model());
          policy.exchange = exchange;
          policy.head_groups = groups;
          policy.token_tile = 11;
          expect_equal(run(policy, documents, {.cp = cp}), want);
        }
  }
}

TEST(Invariants, TilesGroupsAndBlocksDoNotMatter) {
  const Documents documents = documents_of({45, 3, 30});
  const Outcome want = run(test::plain_policy(small_model()), documents);
  for (const int64 token_tile : {1, 7, 32, 1000})
    for (const int64 loss_tile : {1, 13})
      for (const int64 head_groups : {1, 2, 4})
        for (const int64 kv_block : {0, 1, 8, 1000}) {
          SCOPED_TRACE(fmt::format("tiles {} {} groups {} block {}", token_tile, loss_tile, head_groups, kv_block));
          Policy policy = test::plain_policy(small_model());
          policy.token_tile = token_tile;
          policy.loss_tile = loss_tile;
          policy.head_groups = head_groups;
          policy.kv_block = kv_block;
          expect_equal(run(policy, documents), want);
        }
}

// At the same tiles, where a tensor waits changes no bit.
TEST(Invariants, WhereActivationsWaitChangesNoBit) {
  const Documents documents = documents_of({33, 20});
  for (const int64 cp : {1, 2}) {
    Policy policy = test::plain_policy(small_model());
    policy.token_tile = 16;
    const Outcome want = run(policy, documents, {.cp = cp});
    const Keep device = Keep::device, host = Keep::host, again = Keep::recompute;
    const std::vector<std::pair<std::vector<Keep>, std::vector<Keep>>> cases{
        {std::vector<Keep>(7, host), std::vector<Keep>(7, host)},
        {std::vector<Keep>(7, device), std::vector<Keep>(7, again)},
        {std::vector<Keep>(7, again), std::vector<Keep>(7, again)},
        {std::vector<Keep>(7, again), std::vector<Keep>(7, host)},
        {std::vector<Keep>(7, host), std::vector<Keep>(7, again)},
        {{host, host, device, again, again, again, again}, {host, host, host, device, device, again, again}},
        {{again, again, again, again, again, host, device}, {again, device, device, host, host, host, again}},
    };
    for (std::size_t i = 0; i < cases.size(); ++i)
      for (const int64 prefetch : {0, 1}) {
        SCOPED_TRACE(fmt::format("case {} prefetch {} cp {}", i, prefetch, cp));
        policy.layer_input = cases[i].first;
        policy.attention_output = cases[i].second;
        policy.prefetch = prefetch;
        for (const auto& [segment, place] : {std::pair(4, device), std::pair(2, host), std::pair(3, host)}) {
          SCOPED_TRACE(fmt::format("segments of {}", segment));
          policy.recompute_segment = segment;
          policy.segment_input = place;
          const Outcome got = run(policy, documents, {.cp = cp});
          EXPECT_EQ(got.loss_sum, want.loss_sum);
          for (const auto& [name, values] : want.gradients) EXPECT_EQ(got.gradients.at(name), values) << name;
        }
      }
  }
}

// Nor does where weights, gradients and optimizer state live, over several micro-batches.
TEST(Invariants, WhereStateLivesChangesNoBit) {
  const std::vector<Documents> micro_batches{documents_of({33, 20}), documents_of({7})};
  for (const int64 cp : {1, 2})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Policy policy = test::plain_policy(small_model());
      policy.token_tile = 16;
      const auto run_with = [&](const StatePlaces& places) {
        return test::run_model(small_model(), "", policy, micro_batches, {.cp = cp, .dtype = dtype, .places = places});
      };
      for (const int64 prefetch : {0, 1}) {
        policy.prefetch = prefetch;
        const Outcome want = run_with({});
        for (int places = 1; places < 8; ++places) {
          SCOPED_TRACE(fmt::format("cp {} {} prefetch {} places {}", cp, name_of(dtype), prefetch, places));
          const auto place = [&](int bit) { return (places >> bit & 1) != 0 ? Place::host : Place::device; };
          const Outcome got = run_with({place(0), place(1), place(2)});
          EXPECT_EQ(got.loss_sum, want.loss_sum);
          for (const auto& [name, values] : want.gradients) EXPECT_EQ(got.gradients.at(name), values) << name;
        }
      }
    }
}

TEST(Invariants, TheFutureDoesNotMatter) {
  const auto ids = random_ids(40, 5);
  Documents plain;
  plain.add(ids);
  for (const int64 cp : {1, 2, 4}) {
    const Outcome want = run(test::plain_policy(small_model()), plain, {.cp = cp});
    for (const int64 more : {1, 2, 37, 200}) {
      auto longer = ids;
      const auto tail = random_ids(more, 6);
      longer.insert(longer.end(), tail.begin(), tail.end());
      auto labels = longer;
      std::fill(labels.begin() + static_cast<std::ptrdiff_t>(ids.size()), labels.end(), -100);
      Documents documents;
      documents.add(longer, labels);
      SCOPED_TRACE(fmt::format("cp {} more {}", cp, more));
      expect_equal(run(test::plain_policy(small_model()), documents, {.cp = cp}), want);
    }
  }
}

TEST(Invariants, LabelsAnywhere) {
  const auto ids = random_ids(48, 9);
  const auto labelled = [&](auto keep) {
    auto labels = ids;
    for (std::size_t i = 0; i < labels.size(); ++i)
      if (!keep(i)) labels[i] = -100;
    Documents documents;
    documents.add(ids, labels);
    return documents;
  };
  const std::vector<Documents> cases{
      labelled([](std::size_t i) { return i % 6 == 0; }),   // on the borders of chunks
      labelled([](std::size_t i) { return i >= 43; }),      // in the last chunk only
      labelled([](std::size_t i) { return i == 1; }),       // one token
      labelled([](std::size_t) { return false; }),          // none at all
  };
  for (std::size_t c = 0; c < cases.size(); ++c) {
    const Outcome want = run(test::plain_policy(small_model()), cases[c]);
    for (const int64 cp : {2, 3, 4, 8}) {
      SCOPED_TRACE(fmt::format("case {} cp {}", c, cp));
      expect_equal(run(test::plain_policy(small_model()), cases[c], {.cp = cp}), want);
    }
  }
}

TEST(Invariants, OneBatchEqualsItsRowsOneByOne) {
  const std::vector<int64> lengths{31, 2, 17, 64, 5};
  const Outcome want = run(test::plain_policy(small_model()), documents_of(lengths));
  std::vector<Documents> alone;
  for (std::size_t d = 0; d < lengths.size(); ++d) {
    Documents one;
    one.add(random_ids(lengths[d], 100 + static_cast<unsigned>(d)));
    alone.push_back(one);
  }
  expect_equal(test::run_model(small_model(), "", test::plain_policy(small_model()), alone), want);
}

// A document's loss does not depend on the other documents of its micro-batch.
TEST(Invariants, DocumentsDoNotLeak) {
  const auto a = random_ids(30, 1), b = random_ids(30, 2), c = random_ids(30, 3);
  const std::vector<std::int32_t> none(30, -100);
  for (const int64 cp : {1, 2, 3}) {
    Documents first, second;
    first.add(a, a);
    first.add(b, none);
    second.add(a, a);
    second.add(c, none);
    SCOPED_TRACE(cp);
    expect_equal(run(test::plain_policy(small_model()), first, {.cp = cp}),
                 run(test::plain_policy(small_model()), second, {.cp = cp}));
  }
}

TEST(Invariants, TwoRunsAreIdentical) {
  const Documents documents = documents_of({50, 13});
  for (const int64 cp : {1, 3}) {
    const Outcome a = run(test::plain_policy(small_model()), documents, {.cp = cp});
    const Outcome b = run(test::plain_policy(small_model()), documents, {.cp = cp});
    EXPECT_EQ(a.loss_sum, b.loss_sum);
    EXPECT_EQ(a.gradients, b.gradients);
  }
}

TEST(Invariants, EvaluationEqualsTrainingLoss) {
  const Documents documents = documents_of({50, 13});
  const Outcome train = run(test::plain_policy(small_model()), documents);
  for (const int64 cp : {1, 2, 4}) {
    const Outcome evaluated = run(test::plain_policy(small_model()), documents, {.cp = cp, .backward = false});
    EXPECT_NEAR(evaluated.loss_sum / train.loss_sum, 1, 1e-6);
    EXPECT_EQ(evaluated.targets, train.targets);
  }
}

}  // namespace
}  // namespace megatoken
