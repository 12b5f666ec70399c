// Whole runs against transformers' Trainer (tests/golden/README.md): losses, norms, rates, counts and final weights, on
// any number of ranks, and the model that is written.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "io/checkpoint_reader.h"
#include "train/run.h"
#include "train/training_support.h"

namespace megatoken {
namespace {

std::string golden_dir(const std::string& name) { return std::string(MEGATOKEN_TEST_DATA) + "/golden/" + name; }

nlohmann::json expected_training(const std::string& name) {
  return nlohmann::json::parse(std::ifstream(golden_dir(name) + "/expected.json"))["training"];
}

std::string yaml_of(const std::string& name, const std::string& output_dir, const std::string& more) {
  std::string yaml = "model_name_or_path: " + golden_dir(name) + "\ndataset_name: " + golden_dir(name) + "/train.jsonl\n" +
                     "output_dir: " + output_dir + "\ndtype: float32\nbf16: false\nuse_cpu: true\n";
  const nlohmann::json settings = expected_training(name)["settings"];
  for (const auto& [key, value] : settings.items()) yaml += key + ": " + value.dump() + "\n";
  return yaml + more;
}

void expect_golden(const std::string& name, const std::string& output_dir) {
  const auto steps = expected_training(name)["steps"];
  const auto lines = read_log(output_dir);
  ASSERT_EQ(lines.size(), steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i + 1));
    for (const char* key : {"loss", "grad_norm"}) EXPECT_LT(relative(lines[i][key], steps[i][key]), 1e-4) << key;
    EXPECT_NEAR(lines[i]["learning_rate"].get<double>(), steps[i]["learning_rate"].get<double>(), 1e-12);
    EXPECT_EQ(lines[i]["num_tokens"], steps[i]["num_tokens"]);
    EXPECT_NEAR(lines[i]["mean_token_accuracy"].get<double>(), steps[i]["mean_token_accuracy"].get<double>(), 1e-9);
    EXPECT_LT(relative(lines[i]["entropy"], steps[i]["entropy"]), 1e-4);
    EXPECT_EQ(lines[i].contains("aux_loss"), steps[i].contains("aux_loss"));
    if (steps[i].contains("aux_loss")) {
      EXPECT_LT(relative(lines[i]["aux_loss"], steps[i]["aux_loss"]), 1e-4);
    }
  }
  const auto want = SafetensorsFile::open(golden_dir(name) + "/trained.safetensors");
  const auto got = CheckpointReader::open(output_dir);
  for (const TensorInfo& tensor : want.tensors()) {
    std::vector<float> a(static_cast<std::size_t>(tensor.elements)), b(a);
    got.read(tensor.name, 0, tensor.elements, DType::f32, a.data());
    want.read(tensor, 0, tensor.elements, DType::f32, b.data());
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      difference += (a[i] - b[i]) * (a[i] - b[i]);
      norm += b[i] * b[i];
    }
    EXPECT_LT(std::sqrt(difference / norm), 1e-4) << tensor.name;
  }
}

class GoldenTraining : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(GoldenTraining, EqualsTransformersTrainer) {
  const auto& [name, parallel] = GetParam();
  const TemporaryDirectory output;
  ASSERT_EQ(run_training(parse_run_config(yaml_of(name, output.path, parallel), "test")), 0);
  expect_golden(name, output.path);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, GoldenTraining,
    testing::Combine(testing::Values("qwen3_tied", "llama3", "qwen3_moe", "mixtral_fused"),
                     testing::Values("", "num_processes: 2\ncp_size: 2\n", "num_processes: 3\ncp_size: 3\n",
                                     "num_processes: 3\ncp_size: 3\nparallelism_config_cp_comm_strategy: alltoall\n",
                                     "num_processes: 4\ncp_size: 4\nparallelism_config_cp_comm_strategy: alltoall\n",
                                     "num_processes: 8\ncp_size: 8\n",
                                     "num_processes: 8\ncp_size: 8\nparallelism_config_cp_comm_strategy: alltoall\n")));

// Two data-parallel ranks take what two accumulation steps took on one.
TEST(GoldenTraining, DataParallelTakesThePlaceOfAccumulation) {
  for (const std::string name : {"qwen3_tied", "qwen3_moe"})
    for (const std::string parallel : {"num_processes: 2\n", "num_processes: 2\ndp_replicate_size: 2\n",
                                     "num_processes: 4\ndp_shard_size: 2\ncp_size: 2\n",
                                     "num_processes: 6\ndp_replicate_size: 2\ncp_size: 3\n",
                                     "num_processes: 8\ndp_shard_size: 2\ncp_size: 4\n",
                                     "num_processes: 8\ndp_shard_size: 2\ncp_size: 4\nparallelism_config_cp_comm_strategy: alltoall\n"}) {
    SCOPED_TRACE(name + " " + parallel);
    const TemporaryDirectory output;
    auto config = parse_run_config(yaml_of(name, output.path, parallel), "test",
                                   {{"gradient_accumulation_steps", {"1"}}});
    ASSERT_EQ(run_training(config), 0);
    expect_golden(name, output.path);
  }
}

// Where state and activations wait changes no digit of a run.
TEST(Training, PlacesChangeNothing) {
  const TemporaryDirectory plain;
  ASSERT_EQ(run_training(parse_run_config(yaml_of("qwen3_tied", plain.path, "token_tile: 16\n"), "test")), 0);
  const auto want = read_log(plain.path);
  for (const std::string more : {"optimizer_state: host\n", "gradients: host\n", "parameters: host\nprefetch: 0\n",
                                 "optimizer_state: host\ngradients: host\nparameters: host\n", "layer_input: host\nattention_output: host\n",
                                 "layer_input: recompute\nattention_output: recompute\noptimizer_state: host\n"}) {
    SCOPED_TRACE(more);
    const TemporaryDirectory output;
    ASSERT_EQ(run_training(parse_run_config(yaml_of("qwen3_tied", output.path, "token_tile: 16\n" + more), "test")), 0);
    const auto got = read_log(output.path);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i)
      for (const char* key : {"loss", "grad_norm", "entropy"}) EXPECT_EQ(got[i][key], want[i][key]) << key << " of line " << i;
  }
}

// A rate far below bf16's resolution still moves the float32 masters: every step, by about the rate an element.
// The timeline of a step changes none of its numbers and shows every stream at work on every rank.
TEST(Training, AProfiledStepWritesItsTimeline) {
  const TemporaryDirectory plain, output;
  const std::string ranks = "num_processes: 2\ncp_size: 2\nlayer_input: host\nattention_output: host\n";
  ASSERT_EQ(run_training(parse_run_config(yaml_of("qwen3_tied", plain.path, ranks), "test")), 0);
  ASSERT_EQ(run_training(parse_run_config(yaml_of("qwen3_tied", output.path, ranks + "profile_step: 2\n"), "test")), 0);
  const auto want = read_log(plain.path), got = read_log(output.path);
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got[i]["loss"], want[i]["loss"]);
  EXPECT_FALSE(fs::exists(output.path + "/trace-step-1.json"));
  for (const char* file : {"/trace-step-2.json", "/trace-step-2-rank-1.json"}) {
    SCOPED_TRACE(file);
    std::set<std::string> used, phases;
    std::map<int, std::string> track_of;
    const auto trace = nlohmann::json::parse(std::ifstream(output.path + file));
    for (const auto& event : trace["traceEvents"]) {
      phases.insert(event["ph"]);
      if (event["name"] == "thread_name") track_of[event["tid"]] = event["args"]["name"];
      if (event["ph"] == "X") used.insert(track_of[event["tid"]]);
    }
    EXPECT_EQ(used, (std::set<std::string>{"compute", "host-to-device", "device-to-host", "exchange"}));
    for (const char* phase : {"b", "e", "C"}) EXPECT_TRUE(phases.contains(phase)) << phase;
  }
}

std::string read_text(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

int64 files_in(const std::string& dir) {
  if (!fs::exists(dir)) return 0;
  const auto files = fs::recursive_directory_iterator(dir);
  return std::count_if(begin(files), end(files), [](const auto& entry) { return entry.is_regular_file(); });
}

// One page and one event file a run; a resumed run's page tells all its steps, and report_to: none leaves event files out.
TEST(Training, ReportsWhatItDid) {
  const TemporaryDirectory output, silent;
  const std::string more = "save_strategy: steps\nsave_steps: 4\n";
  ASSERT_EQ(run_training(parse_run_config(yaml_of("qwen3_tied", output.path, more), "test")), 0);
  const auto last = read_log(output.path).back();
  const std::string page = read_text(output.path + "/report.html");
  for (const std::string& part : {std::string("<dd>10 of 10</dd>"), fmt::format("<dd>{:.4f}</dd>", last["loss"].get<double>()),
                                  std::string("Step 2 by stream"), std::string("cosine")})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_EQ(files_in(output.path + "/runs"), 1);

  fs::remove_all(output.path + "/checkpoint-10");
  ASSERT_EQ(run_training(parse_run_config(yaml_of("qwen3_tied", output.path, more + "resume_from_checkpoint: true\n"), "test")), 0);
  // The curve of the loss, the page's first, is the unbroken run's.
  const auto curve = [](const std::string& html) {
    const auto begin = html.find("<path class=\"line c0\"");
    return html.substr(begin, html.find("/>", begin) - begin);
  };
  EXPECT_EQ(curve(read_text(output.path + "/report.html")), curve(page));
  EXPECT_NE(curve(page), "");

  ASSERT_EQ(run_training(parse_run_config(yaml_of("qwen3_tied", silent.path, "report_to: none\n"), "test")), 0);
  EXPECT_EQ(files_in(silent.path + "/runs"), 0);
}

TEST(Training, SmallUpdatesMoveTheMasters) {
  const TemporaryDirectory output;
  const std::string yaml = yaml_of("qwen3_tied", output.path, "save_strategy: steps\nsave_steps: 10\n");
  auto config = parse_run_config(yaml, "test",
                                 {{"bf16", {"true"}}, {"dtype", {"bfloat16"}}, {"learning_rate", {"1e-6"}},
                                  {"lr_scheduler_type", {"constant"}}, {"warmup_steps", {"0"}}, {"weight_decay", {"0"}}});
  ASSERT_EQ(run_training(config), 0);
  const auto before = CheckpointReader::open(golden_dir("qwen3_tied"));
  const auto after = CheckpointReader::open(output.path + "/checkpoint-10", "optimizer");
  for (const std::string name : {"model.layers.0.mlp.up_proj.weight", "model.layers.1.self_attn.q_proj.weight", "model.norm.weight"}) {
    const auto elements = static_cast<std::size_t>(before.find(name)->elements);
    std::vector<float> was(elements), is(elements);
    before.read(name, 0, static_cast<int64>(elements), DType::f32, was.data());
    after.read("master." + name, 0, static_cast<int64>(elements), DType::f32, is.data());
    std::size_t moved = 0;
    for (std::size_t i = 0; i < elements; ++i) {
      moved += is[i] != was[i];
      EXPECT_LT(std::abs(is[i] - was[i]), 1.1e-5);  // ten steps of at most the rate
    }
    EXPECT_GT(moved, elements * 9 / 10) << name;
  }
}

TEST(Training, ResumesExactly) {
  const TemporaryDirectory whole, parts;
  const std::string more = "save_strategy: steps\nsave_steps: 1\n";
  ASSERT_EQ(run_training(parse_run_config(yaml_of("qwen3_tied", whole.path, more), "test")), 0);
  const auto want = read_log(whole.path);
  for (const int stop : {1, 3, 6}) {  // an epoch has three steps
    SCOPED_TRACE(stop);
    fs::remove_all(parts.path);
    fs::copy(whole.path, parts.path, fs::copy_options::recursive);
    for (int later = stop + 1; later <= 10; ++later) fs::remove_all(parts.path + "/checkpoint-" + std::to_string(later));
    ASSERT_EQ(run_training(parse_run_config(yaml_of("qwen3_tied", parts.path, more + "resume_from_checkpoint: true\n"), "test")), 0);
    const auto got = read_log(parts.path);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i)
      for (const char* key : {"step", "loss", "grad_norm", "learning_rate", "num_tokens", "epoch", "entropy"})
        EXPECT_EQ(got[i][key], want[i][key]) << key << " of line " << i;
  }
}

}  // namespace
}  // namespace megatoken
