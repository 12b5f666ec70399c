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

}  // namespace
}  // namespace megatoken
