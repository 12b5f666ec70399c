// The plan is true: what the process takes, measured from outside, is what `plan` says, at every length, and so grows
// linearly with it.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct Finished {
  int status = -1;
  double peak_bytes = 0;  // VmHWM
  std::string output;
};

Finished run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), MEGATOKEN_PROGRAM);
  std::vector<char*> argv;
  for (auto& a : arguments) argv.push_back(a.data());
  argv.push_back(nullptr);
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipe_ends[1], STDOUT_FILENO);
    close(pipe_ends[0]);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(pipe_ends[1]);
  Finished finished;
  std::array<char, 4096> piece{};
  for (ssize_t n = 0; (n = read(pipe_ends[0], piece.data(), piece.size())) > 0;)
    finished.output.append(piece.data(), static_cast<std::size_t>(n));
  close(pipe_ends[0]);
  rusage usage{};
  wait4(child, &finished.status, 0, &usage);
  finished.peak_bytes = static_cast<double>(usage.ru_maxrss) * 1024;
  return finished;
}

TEST(Memory, FollowsThePlan) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep memory of their own";
#endif
  std::string dir = (fs::temp_directory_path() / "megatoken-memory-XXXXXX").string();
  ASSERT_NE(mkdtemp(dir.data()), nullptr);
  std::ofstream(dir + "/config.json") << R"({"model_type": "qwen3", "vocab_size": 4096, "hidden_size": 256,
    "intermediate_size": 768, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 65536, "tie_word_embeddings": true,
    "hidden_act": "silu", "attention_bias": false})";
  for (const int length : {8192, 16384, 24576}) {
    SCOPED_TRACE(length);
    const std::string rows = dir + "/rows.jsonl";
    {
      std::ofstream out(rows);
      out << R"({"input_ids": [1)";
      for (int i = 1; i < length; ++i) out << ',' << i * 7919LL % 4096;
      out << "]}\n";
    }
    const std::vector<std::string> common{"--model_name_or_path",
                                          dir,
                                          "--dtype",
                                          "float32",
                                          "--use_cpu",
                                          "true",
                                          "--max_length",
                                          std::to_string(length),
                                          "--per_device_train_batch_size",
                                          "1"};
    auto plan_arguments = common, train_arguments = common;
    plan_arguments.insert(plan_arguments.begin(), "plan");
    plan_arguments.push_back("--json");
    train_arguments.insert(train_arguments.begin(), "train");
    for (const char* more :
         {"--init_from_config", "true", "--max_steps", "1", "--save_strategy", "no", "--dataset_name"})
      train_arguments.emplace_back(more);
    train_arguments.push_back(rows);
    train_arguments.insert(train_arguments.end(), {"--output_dir", dir + "/out"});
    const Finished plan = run(plan_arguments), train = run(train_arguments);
    ASSERT_EQ(plan.status, 0) << plan.output;
    ASSERT_EQ(train.status, 0) << train.output;
    const auto planned = nlohmann::json::parse(plan.output);
    const double said = planned["device_peak_bytes"].get<double>() + planned["host_peak_bytes"].get<double>();
    EXPECT_NEAR((train.peak_bytes - plan.peak_bytes) / said, 1, 0.02) << "planned " << said;
  }
  fs::remove_all(dir);
}

}  // namespace
