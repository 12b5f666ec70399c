// Each rank reads its own slices of a checkpoint, and nothing else.
#include <gtest/gtest.h>

#include "io/checkpoint_reader.h"
#include "model/parameters.h"
#include "model/weights.h"

namespace megatoken {
namespace {

TEST(Loading, EachRankReadsItsShareOnce) {
  const auto device = create_cpu_device(1);
  const auto stream = device->create_stream(StreamMode::in_order_inline);
  for (const char* name : {"qwen3_untied", "qwen3_tied", "llama_bf16_shards", "qwen3_moe", "mixtral", "mixtral_fused"}) {
    const std::string dir = std::string(MEGATOKEN_TEST_DATA) + "/golden/" + name;
    ModelSpec spec = ModelSpec::from_directory(dir);
    spec.expert_layout = expert_layout_of(spec, CheckpointReader::open(dir));
    for (const int64 ranks : {1, 3, 8}) {
      SCOPED_TRACE(fmt::format("{}, {} ranks", name, ranks));
      int64 all = 0, most = 0, total = 0;
      for (int64 rank = 0; rank < ranks; ++rank) {
        const auto reader = CheckpointReader::open(dir);
        ShardedParameters parameters(make_buckets(spec), DType::f32, ranks, rank, device.get());
        load_weights(parameters, *stream, reader);
        all += reader.bytes_read();
        most = std::max(most, reader.bytes_read());
        total = reader.total_bytes();
      }
      EXPECT_EQ(all, total);
      // Shards are equal up to the rounding of each bucket.
      const int64 rounding = static_cast<int64>(make_buckets(spec).size()) * BucketSpec::kAlignment * 4;
      EXPECT_LE(most, total / ranks + rounding);
    }
  }
}

// What a checkpoint of another model lacks, has too much or in another shape is named.
TEST(Loading, ExpertsThatDoNotMatchTheConfigurationAreNamed) {
  const auto refusal = [](const char* name, const auto& change) -> std::string {
    const std::string dir = std::string(MEGATOKEN_TEST_DATA) + "/golden/" + name;
    ModelSpec spec = ModelSpec::from_directory(dir);
    change(spec.experts);
    const auto reader = CheckpointReader::open(dir);
    spec.expert_layout = expert_layout_of(spec, reader);
    try {
      check_weights(spec, make_buckets(spec), reader);
    } catch (const FileError& error) {
      return error.what();
    }
    return "";
  };
  const auto expect = [&](const char* name, const auto& change, const std::string& words) {
    EXPECT_NE(refusal(name, change).find(words), std::string::npos) << refusal(name, change);
  };
  const auto more = [](ExpertSpec& e) { e.count = 7; };
  const auto fewer = [](ExpertSpec& e) { e.count = 5; };
  const auto wider = [](ExpertSpec& e) { e.intermediate_size += 4; };
  expect("qwen3_moe", more, "mlp.gate.weight has shape [6, 32], the configuration asks for [7, 32]");
  expect("qwen3_moe", fewer, "mlp.gate.weight has shape [6, 32], the configuration asks for [5, 32]");
  expect("qwen3_moe", wider, "experts.0.gate_proj.weight has shape [20, 32], the configuration asks for [24, 32]");
  expect("mixtral", wider, "block_sparse_moe.experts.0.w1.weight has shape [28, 32]");
  expect("mixtral_fused", wider, "mlp.experts.gate_up_proj has shape [6, 56, 32], the configuration asks for [6, 64, 32]");
  expect("qwen2_moe", [](ExpertSpec& e) { e.shared_intermediate_size = 0; }, "mlp.shared_expert");
  expect("qwen3_moe", [](ExpertSpec& e) { e.dense_layers.clear(); }, "layers.1.mlp.gate.weight is missing");
  EXPECT_EQ(refusal("qwen2_moe", [](ExpertSpec&) {}), "");
}

}  // namespace
}  // namespace megatoken
