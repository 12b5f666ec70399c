// Whole runs on one GPU: any number of thread ranks on it gives one rank's losses and norms, and those are the CPU's.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <iostream>

#include "device/device.h"
#include "train/run.h"
#include "train/training_support.h"

namespace megatoken {
namespace {

// A small model with random weights, and rows of which nearly every token follows from the one before it. The weights
// are large enough for attention to matter: another rope_theta changes losses by 3e-2 and norms by 0.14; bf16 instead
// of float32 changes them by 1.5e-3 and 1e-2 over 20 steps on the CPU, in which the loss falls from 6.7 to 1.7.
struct Task {
  TemporaryDirectory dir;
  Task() {
    std::ofstream(dir.path + "/config.json") << R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
      "vocab_size": 512, "hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 64, "hidden_act": "silu", "max_position_embeddings": 4096,
      "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "tie_word_embeddings": true, "attention_bias": false,
      "initializer_range": 0.08, "torch_dtype": "bfloat16"})";
    std::ofstream rows(dir.path + "/train.jsonl");
    for (int row = 0; row < 16; ++row) {
      std::vector<int> ids = {row};
      while (ids.size() < 1024) ids.push_back((ids.back() * 5 + 7 + (ids.size() % 7 == 0 ? row : 0)) % 61);
      rows << nlohmann::json{{"input_ids", ids}}.dump() << "\n";
    }
  }
  std::vector<nlohmann::json> train(int steps, const std::string& more, int batch = 2) const {
    const TemporaryDirectory output;
    const std::string yaml = "model_name_or_path: " + dir.path + "\ninit_from_config: true\ndataset_name: " + dir.path +
                             "/train.jsonl\noutput_dir: " + output.path +
                             "\nmax_length: 1024\nlearning_rate: 1e-3\n"
                             "lr_scheduler_type: constant\nbf16: true\nsave_strategy: 'no'\nmax_steps: " +
                             std::to_string(steps) + "\nper_device_train_batch_size: " + std::to_string(batch) + "\n" +
                             more;
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(run_training(parse_run_config(yaml, "test")), 0);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    auto lines = read_log(output.path);
    EXPECT_EQ(static_cast<int>(lines.size()), steps);
    std::cout << (more.empty() ? "defaults" : nlohmann::json(more).dump()) << ": loss " << lines.front()["loss"]
              << " to " << lines.back()["loss"] << ", " << took.count() << " s\n";
    return lines;
  }
};

void expect_equal(const std::vector<nlohmann::json>& got, const std::vector<nlohmann::json>& want, double loss,
                  double norm) {
  ASSERT_EQ(got.size(), want.size());
  double worst_loss = 0, worst_norm = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i + 1));
    worst_loss = std::max(worst_loss, relative(got[i]["loss"], want[i]["loss"]));
    worst_norm = std::max(worst_norm, relative(got[i]["grad_norm"], want[i]["grad_norm"]));
    EXPECT_LT(relative(got[i]["loss"], want[i]["loss"]), loss);
    EXPECT_LT(relative(got[i]["grad_norm"], want[i]["grad_norm"]), norm);
    for (const char* key : {"num_tokens", "target_tokens"}) EXPECT_EQ(got[i][key], want[i][key]) << key;
  }
  std::cout << "  largest difference: loss " << worst_loss << ", gradient norm " << worst_norm << "\n";
}

class GpuTraining : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }
  const Task task;
};

TEST_F(GpuTraining, RanksOnOneGpuDoNotMatter) {
  const auto want = task.train(6, "device: cuda\n");
  for (const auto& [parallel, batch] : std::vector<std::pair<std::string, int>>{
           {"num_processes: 2\ncp_size: 2\n", 2},
           {"num_processes: 2\ncp_size: 2\nparallelism_config_cp_comm_strategy: alltoall\n", 2},
           {"num_processes: 4\ncp_size: 4\n", 2},
           {"num_processes: 4\ncp_size: 4\nparallelism_config_cp_comm_strategy: alltoall\n", 2},
           {"num_processes: 4\ncp_size: 2\n", 1},
           {"num_processes: 2\ndp_replicate_size: 2\n", 1}}) {
    SCOPED_TRACE(parallel);
    expect_equal(task.train(6, fmt::format("device: cuda\n{}", parallel), batch), want, 5e-3, 2e-2);
  }
}

TEST_F(GpuTraining, EqualsTheCpuOverTwentySteps) {
  const auto want = task.train(20, "use_cpu: true\n");
  EXPECT_LT(want.back()["loss"], 0.5 * want.front()["loss"].get<double>());
  expect_equal(task.train(20, "device: cuda\n"), want, 1e-2, 5e-2);
}

}  // namespace
}  // namespace megatoken
