// A rank that is stopped: found out by its silence, which takes some seconds.
#include "cli/golden_run.h"
#include "cli/process_job.h"

namespace megatoken::testing {
namespace {

class StoppedRank : public ProcessTest {};

TEST_F(StoppedRank, EndsTheJobWithinAMinute) {
  for (const std::size_t victim : {0, 1}) {
    const GoldenRun run("save_strategy: \"no\"\n");
    ProcessJob job;
    job.start_ranks(2, run.train("out", {"--max_steps", "1000000", "--cp_size", "2"}));
    for (int i = 0; i < 3000 && run.steps("out").size() < 3; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_GE(run.steps("out").size(), 3u) << job.all_err();
    job.signal(victim, SIGSTOP);
    EXPECT_EQ(job.wait(1 - victim, std::chrono::seconds(60)), 5) << job.all_err();
    job.signal(victim, SIGCONT);  // it is no orphan: it learns that it was given up
    EXPECT_EQ(job.wait(victim, std::chrono::seconds(60)), 5) << job.all_err();
    EXPECT_THAT(job.err(0), ::testing::HasSubstr(victim == 1 ? "rank 1 (host" : "rank "));
  }
}

class ProcessMemory : public ProcessTest {};

// Loading and training on eight ranks take what the plan says and no copy of the model, as processes and as threads.
TEST_F(ProcessMemory, StaysInsideThePlan) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep memory of their own";
#endif
  constexpr int kRanks = 8;
  constexpr double kMiB = 1 << 20;
  constexpr double kLargestTensor = 32768.0 * 512 * 4;
  const Directory directory;
  directory.write("model/config.json", R"({"model_type": "qwen3", "vocab_size": 32768, "hidden_size": 512,
    "intermediate_size": 1536, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 128,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 65536, "tie_word_embeddings": true,
    "hidden_act": "silu", "attention_bias": false})");
  const std::string rows = directory.write("rows.jsonl", "{\"input_ids\": [5, 6, 7, 8, 9, 10, 11, 12, 13]}\n");
  const std::vector<std::string> common = {
      "--dtype", "float32", "--use_cpu", "true", "--max_length", "64", "--per_device_train_batch_size", "1"};
  const auto arguments = [&](std::vector<std::string> first) {
    first.insert(first.end(), common.begin(), common.end());
    return first;
  };
  ProcessJob one, plan, job, threads;
  one.start(
      arguments({"train", "--model_name_or_path", directory / "model", "--init_from_config", "true", "--max_steps", "1",
                 "--save_strategy", "no", "--dataset_name", rows, "--output_dir", directory / "saved"}),
      {});
  ASSERT_THAT(one.wait(), ::testing::Each(0)) << one.all_err();
  const std::vector<std::string> mesh = {"--cp_size", std::to_string(kRanks)};
  auto words = arguments(
      {"plan", "--json", "--model_name_or_path", directory / "saved", "--num_processes", std::to_string(kRanks)});
  words.insert(words.end(), mesh.begin(), mesh.end());
  plan.start(words, {});
  ASSERT_THAT(plan.wait(), ::testing::Each(0)) << plan.all_err();
  words = arguments({"train", "--model_name_or_path", directory / "saved", "--max_steps", "1", "--save_strategy", "no",
                     "--dataset_name", rows, "--output_dir", directory / "out"});
  words.insert(words.end(), mesh.begin(), mesh.end());
  job.start_ranks(kRanks, words);
  ASSERT_THAT(job.wait(), ::testing::Each(0)) << job.all_err();
  words.insert(words.end(), {"--num_processes", std::to_string(kRanks)});
  threads.start(words, {});
  ASSERT_THAT(threads.wait(), ::testing::Each(0)) << threads.all_err();
  const auto planned = nlohmann::json::parse(plan.out(0));
  const double rank = planned["device_peak_bytes"].get<double>() + planned["host_peak_bytes"].get<double>() / kRanks;
  for (std::size_t r = 0; r < kRanks; ++r)
    EXPECT_LE(static_cast<double>(job.peak_bytes(r) - plan.peak_bytes(0)), rank + kLargestTensor + 64 * kMiB)
        << "rank " << r;
  EXPECT_LE(static_cast<double>(threads.peak_bytes(0) - plan.peak_bytes(0)),
            kRanks * (rank + 64 * kMiB) + kLargestTensor);
}

}  // namespace
}  // namespace megatoken::testing
