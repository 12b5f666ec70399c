// A short training of a golden model (tests/golden), to be started in any way and compared.
#pragma once

#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/cli_test_support.h"

namespace megatoken::testing {

class GoldenRun {
 public:
  explicit GoldenRun(const std::string& more = "") {
    const std::string golden = MEGATOKEN_TEST_DATA "/golden/qwen3_tied";
    config_ = directory_.write("run.yaml", "model_name_or_path: " + golden + "\ndataset_name: " + golden +
                                               "/train.jsonl\n"
                                               "dtype: float32\nbf16: false\nuse_cpu: true\nmax_steps: 3\n"
                                               "per_device_train_batch_size: 1\nlearning_rate: 1e-3\nmax_length: 64\n" +
                                               more);
  }
  const std::string& config() const { return config_; }
  std::string output(const std::string& name) const { return directory_ / name; }
  std::vector<std::string> train(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"train", config_, "--output_dir", output(name)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  std::string command(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::string text;
    for (const std::string& argument : train(name, more)) text += argument + " ";
    return text;
  }

  // The training lines of a run's log.
  std::vector<nlohmann::json> steps(const std::string& name) const {
    std::vector<nlohmann::json> lines;
    std::istringstream log(read_file(output(name) + "/trainer_log.jsonl"));
    for (std::string line; std::getline(log, line);) {
      auto parsed = nlohmann::json::parse(line);
      if (parsed.contains("loss")) lines.push_back(std::move(parsed));
    }
    return lines;
  }
  std::string weights(const std::string& name) const { return read_file(output(name) + "/model.safetensors"); }
  // Losses, norms, counts and weights are the same bits.
  void expect_same(const std::string& name, const std::string& other) const {
    const auto a = steps(name), b = steps(other);
    ASSERT_FALSE(a.empty());
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i)
      for (const char* key : {"loss", "grad_norm", "num_tokens", "target_tokens", "entropy"})
        EXPECT_EQ(a[i][key], b[i][key]) << name << " and " << other << ", step " << i + 1 << ", " << key;
    EXPECT_TRUE(weights(name) == weights(other)) << "weights of " << name << " and " << other;
    EXPECT_FALSE(weights(name).empty());
  }

 private:
  Directory directory_;
  std::string config_;
};

}  // namespace megatoken::testing
