// The bytes that a rank sends in a micro-batch are those of docs/exchange.md, counted.
#include <gtest/gtest.h>

#include "model/run_model.h"

namespace megatoken {
namespace {

ModelSpec model(bool tied) {
  return ModelSpec::from_config_json(
      fmt::format(R"({{"model_type": "qwen3", "vocab_size": 61, "hidden_size": 24, "intermediate_size": 40,
    "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 6, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": {}, "max_position_embeddings": 512, "rope_theta": 10000.0, "initializer_range": 0.2,
    "hidden_act": "silu", "attention_bias": false}})",
                  tied),
      "test");
}

// docs/exchange.md, in its own letters.
int64 formula(const ModelSpec& spec, DType dtype, const std::vector<int64>& lengths, int64 n, KvExchange exchange) {
  const int64 d = size_of(dtype);
  const int64 T = TokenLayout(lengths, n).rows(), K = spec.num_kv_heads * spec.head_dim, L = spec.num_layers;
  const ShardedParameters sizes(make_buckets(spec), dtype, n, 0, nullptr);
  const int64 embeddings = spec.tie_word_embeddings ? 2 : 1;
  int64 weights = embeddings * sizes.shard_elements(kEmbeddingBucket) + sizes.shard_elements(head_bucket(spec));
  int64 gradients = weights;
  for (int64 i = 0; i < L; ++i) {
    weights += 2 * sizes.shard_elements(kFirstLayerBucket + i);
    gradients += sizes.shard_elements(kFirstLayerBucket + i);
  }
  const int64 rotations = exchange == KvExchange::ring ? n : n - 1;
  return (n - 1) * (d * weights + 4 * gradients) + L * T * 2 * K * (2 * (n - 1) * d + rotations * 4);
}

TEST(ExchangeBytes, AreThoseOfTheFormula) {
  for (const bool tied : {false, true})
    for (const std::vector<int64>& lengths : {std::vector<int64>{64}, std::vector<int64>{3, 50, 1, 17}})
      for (const DType dtype : {DType::f32, DType::bf16})
        for (const int64 ranks : {2, 3, 8})
          for (const KvExchange exchange : {KvExchange::allgather, KvExchange::ring})
            for (const int64 groups : {1, 2}) {
              const ModelSpec spec = model(tied);
              SCOPED_TRACE(fmt::format("tied {}, {} documents, {} ranks, {}, {} head groups", tied, lengths.size(),
                                       ranks, exchange == KvExchange::ring ? "ring" : "allgather", groups));
              Policy policy = test::plain_policy(spec);
              policy.exchange = exchange;
              policy.head_groups = groups;
              policy.token_tile = 5;
              test::Documents documents;
              for (const int64 length : lengths)
                documents.add(std::vector<std::int32_t>(static_cast<std::size_t>(length), 7));
              const auto outcome = test::run_model(spec, "", policy, {documents}, {.cp = ranks, .dtype = dtype});
              ASSERT_EQ(static_cast<int64>(outcome.bytes_sent.size()), ranks);
              for (const auto& [rank, bytes] : outcome.bytes_sent)
                EXPECT_EQ(bytes, formula(spec, dtype, lengths, ranks, exchange)) << "rank " << rank;
            }
}

}  // namespace
}  // namespace megatoken
