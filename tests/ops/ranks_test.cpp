// Ranks are threads of one process: ops called from several at once give each rank what it gets alone.
#include <omp.h>

#include <thread>

#include "ops/op_cases.h"

namespace megatoken {
namespace {

// A case of each kind, and those with the most state behind them.
std::vector<OpCase> chosen_cases() {
  std::vector<OpCase> chosen;
  for (OpCase& op : op_cases()) {
    for (const char* name :
         {"gemm_f32_f32_65x130x257_nt", "gemm_bf16_bf16_300x7x600_tn", "attention_forward_f32_129x129_2_1_64_causal",
          "attention_backward_f32_257x257_4_2_16_causal", "attention_backward_bf16_130x400_2_1_80_causal",
          "rms_norm_backward_bf16_f32_f32_130x256_1", "norm_rope_f32_70x2x128_norm_apart", "cross_entropy_33x100_bf16",
          "embedding_backward_f32_9_500x130", "sum_squares_200001", "bias_gradient_bf16_130x257"}) {
      if (op.name == name) chosen.push_back(std::move(op));
    }
  }
  return chosen;
}

TEST(Ranks, OpsOfSeveralThreadsDoNotMeet) {
  const std::vector<OpCase> cases = chosen_cases();
  ASSERT_EQ(cases.size(), 11u);
  std::vector<std::vector<std::byte>> alone;
  const auto device = create_cpu_device(1);
  for (const OpCase& op : cases) {
    Rig rig(*device, cpu_op_table(), seed_of(op.name));
    op.run(rig);
    alone.push_back(rig.written_bytes());
  }
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto own = create_cpu_device(kTestThreads);
      for (std::size_t i = 0; i < 2 * cases.size(); ++i) {
        const std::size_t which = (i + 3 * rank) % cases.size();  // different ops meet
        Rig rig(*own, cpu_op_table(), seed_of(cases[which].name));
        cases[which].run(rig);
        EXPECT_EQ(rig.written_bytes(), alone[which]) << cases[which].name << " on rank " << rank;
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

// A worker stream runs ops too (its tasks have one thread), beside compute.
TEST(Ranks, OpsOnAWorkerStream) {
  const auto device = create_cpu_device(kTestThreads);
  const auto worker = device->create_stream(StreamMode::own_thread);
  const auto compute = device->create_stream(StreamMode::in_order_inline);
  std::vector<float> a(1000, 1.0f), b(1000, 2.0f), c(1000, 3.0f);
  const auto view = [](std::vector<float>& v) { return View(v.data(), DType::f32, 10, 100); };
  for (int i = 0; i < 50; ++i) {
    worker->submit([&](Stream& s) { cpu_op_table().accumulate(s, {view(a), view(b)}); });
    compute->submit([&](Stream& s) { cpu_op_table().accumulate(s, {view(a), view(c)}); });
  }
  worker->synchronize();
  compute->synchronize();
  EXPECT_EQ(b[999], 52.0f);
  EXPECT_EQ(c[0], 53.0f);
}

// The thread count of an op is its device's: the default of the calling thread stays what it was.
TEST(Ranks, OpsLeaveTheOpenMpSettingsAlone) {
  for (const int threads : {1, kTestThreads}) {
    const int before = omp_get_max_threads();
    const auto device = create_cpu_device(threads);
    for (const OpCase& op : chosen_cases()) {
      Rig rig(*device, cpu_op_table(), seed_of(op.name));
      op.run(rig);
    }
    EXPECT_EQ(omp_get_max_threads(), before);
  }
}

}  // namespace
}  // namespace megatoken
