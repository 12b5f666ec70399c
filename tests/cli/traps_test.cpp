// The known traps of training long sequences with TRL, transformers and accelerate (docs/from_trl.md), each tried on
// the program as a user would: either it is right here, or it is refused by name.
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli_test_support.h"

namespace megatoken {
namespace {

using testing::Directory;
using testing::expect_error;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::read_file;
using testing::run;
using Json = nlohmann::json;
namespace fs = std::filesystem;

const std::string kModel = std::string(MEGATOKEN_TEST_DATA) + "/golden/qwen3_tied";
const std::string kRows = kModel + "/train.jsonl";

class Traps : public ::testing::Test {
 protected:
  std::string common(const std::string& model = kModel) const {
    return " --use_cpu --dtype float32 --max_length 64 --model_name_or_path " + model + " ";
  }
  // One optimizer step over all rows; its line in the log.
  Json step(const std::string& name, const std::string& more, const std::string& model = kModel) {
    const Outcome outcome =
        run("train --max_steps 1 --per_device_train_batch_size 10 --save_strategy no --report_to none" + common(model) +
            "--dataset_name " + kRows + " --output_dir " + (directory_ / name) + " " + more);
    EXPECT_EQ(outcome.status, 0) << more << "\n" << outcome.err;
    said_ = outcome.out;
    std::istringstream log(read_file(directory_ / name + "/trainer_log.jsonl"));
    for (std::string line; std::getline(log, line);)
      if (const Json parsed = Json::parse(line); parsed.contains("loss")) return parsed;
    ADD_FAILURE() << "no step in the log of " << name << "\n" << outcome.err;
    return {};
  }
  double eval_loss(const std::string& more, const std::string& model = kModel) {
    const Outcome outcome = run("eval --json" + common(model) + "--eval_dataset " + kRows + " " + more);
    EXPECT_EQ(outcome.status, 0) << more << "\n" << outcome.err;
    return outcome.status == 0 ? Json::parse(outcome.out)["eval_loss"].get<double>() : 0;
  }
  static Json plan(const std::string& more) {
    const Outcome outcome =
        run("plan --json --device cuda --max_length 64 --model_name_or_path " + kModel + " " + more);
    EXPECT_EQ(outcome.status, 0) << more << "\n" << outcome.err;
    return outcome.status == 0 ? Json::parse(outcome.out) : Json{};
  }
  static bool waits_on_host(const Json& planned) {
    int found = 0;
    for (const Json& buffer : planned["buffers"]) {
      found += buffer["name"] == "layer inputs on the host" && buffer["place"] == "host";
      found += buffer["name"] == "attention outputs on the host" && buffer["place"] == "host";
    }
    return found == 2;
  }
  // The model of kModel under another name, with keys of its config.json replaced; null removes one.
  std::string model_with(const std::string& name, const Json& keys) {
    fs::create_directories(directory_ / name);
    fs::copy_file(kModel + "/model.safetensors", directory_ / name + "/model.safetensors");
    Json config = Json::parse(read_file(kModel + "/config.json"));
    config.merge_patch(keys);
    directory_.write(name + "/config.json", config.dump());
    return directory_ / name;
  }

  Directory directory_;
  std::string said_;
};

// The block-diagonal mask of packed rows is dropped under context parallelism: documents read each other.
TEST_F(Traps, PackingUnderContextParallelism) {
  const std::string command = "train" + common() + "--dataset_name " + kRows + " --num_processes 2 --cp_size 2 ";
  expect_error(command + "--packing", 2, "packing: true is refused");
  expect_error(command + "--eval_packing --packing_strategy bfd", 2, "eval_packing: true is refused");
}

// Asking for Liger's kernels turns the chunked loss off, and the logits of all tokens exist at once.
TEST_F(Traps, LigerLeavesTheLossChunked) {
  const std::string size = "--max_length 8192 --loss_type chunked_nll ";
  const Json plain = plan(size), liger = plan(size + "--use_liger_kernel");
  EXPECT_EQ(plain["buffers"], liger["buffers"]);
  EXPECT_EQ(plain["device_peak_bytes"], liger["device_peak_bytes"]);
  const Json loss = step("plain", "--loss_type chunked_nll")["loss"];
  EXPECT_EQ(step("liger", "--loss_type chunked_nll --use_liger_kernel")["loss"], loss);
  EXPECT_THAT(said_, HasSubstr("accepted, no effect: use_liger_kernel"));
}

// An offload key that the installed version doesn't know is passed over, and the job runs out of memory hours later.
TEST_F(Traps, EveryOffloadKeyOffloads) {
  EXPECT_FALSE(waits_on_host(plan("")));
  for (const std::string key :
       {"--gradient_checkpointing_kwargs.offload true", "--activation_offloading true",
        "--gradient_checkpointing_kwargs '{\"offload\": true, \"use_reentrant\": false}'",
        "--fsdp_activation_checkpointing_offload true", "--fsdp_config.activation_checkpointing_offload true"})
    EXPECT_TRUE(waits_on_host(plan(key))) << key;
  const std::string file =
      directory_.write("accelerate.yaml",
                       "distributed_type: FSDP\nnum_processes: 1\nfsdp_config:\n  fsdp_version: 2\n"
                       "  fsdp_activation_checkpointing: true\n  fsdp_activation_checkpointing_offload: true\n");
  EXPECT_TRUE(waits_on_host(plan("--accelerate_config " + file)));
  expect_error("plan --fsdp_activation_checkpoint_offload true", 2,
               "did you mean --fsdp_activation_checkpointing_offload");
  const std::string wrong = directory_.write("wrong.yaml", "gradient_checkpointing_kwargs:\n  offlaod: true\n");
  expect_error("plan " + wrong, 2,
               ":2: gradient_checkpointing_kwargs.offlaod: unknown key; did you mean "
               "gradient_checkpointing_kwargs.offload?");
}

// transformers 4 ignores rope_parameters, transformers 5 wants rope_theta inside it; either way the model trains
// without.
TEST_F(Traps, RopeOfEitherMajorVersion) {
  const std::string yarn = "\"factor\": 8.0, \"original_max_position_embeddings\": 32";
  const double without = eval_loss("");
  const double with = eval_loss("--rope_parameters '{\"rope_type\": \"yarn\", \"rope_theta\": 10000.0, " + yarn + "}'");
  EXPECT_GT(std::abs(with - without), 1e-4);
  for (const std::string& key :
       {"--rope_parameters '{\"rope_type\": \"yarn\", " + yarn + "}'",  // theta is the model's
        "--rope_scaling '{\"rope_type\": \"yarn\", " + yarn + "}'",
        "--rope_scaling '{\"type\": \"yarn\", " + yarn + "}'",
        "--model_init_kwargs '{\"rope_scaling\": {\"type\": \"yarn\", " + yarn + "}}'",
        "--model_init_kwargs '{\"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 10000.0, " + yarn +
            "}}'"})
    EXPECT_EQ(eval_loss(key), with) << key;
  // As config.json has it: the key inside and at the top level, the model's own theta in either place.
  const std::string inside = "{\"rope_type\": \"yarn\", \"rope_theta\": 10000.0, " + yarn + "}";
  EXPECT_EQ(eval_loss("", model_with("new", Json::parse("{\"rope_parameters\": " + inside + "}"))), with);
  EXPECT_EQ(eval_loss("", model_with("old", Json::parse("{\"rope_parameters\": null, \"rope_theta\": 10000.0, "
                                                        "\"rope_scaling\": {\"type\": \"yarn\", " +
                                                        yarn + "}}"))),
            with);
  expect_error("plan --rope_scaling.type yarn --rope_parameters.rope_type yarn", 2, "rope");
  // What was trained is what the saved config.json says.
  step("trained", "--learning_rate 0 --rope_scaling '{\"type\": \"yarn\", " + yarn + "}'");
  EXPECT_NEAR(eval_loss("", directory_ / "trained"), with, 1e-6 * with);
}

// Layers with a window or chunks, trained with full causal attention.
TEST_F(Traps, LocalAttentionIsNotTrainedAsFull) {
  const std::string window =
      model_with("window", {{"use_sliding_window", true}, {"sliding_window", 8}, {"max_window_layers", 0}});
  const std::string mixed = model_with(
      "mixed",
      {{"layer_types", {"full_attention", "sliding_attention"}}, {"sliding_window", 8}, {"use_sliding_window", true}});
  const std::string chunked = model_with("chunked", {{"layer_types", {"chunked_attention", "full_attention"}}});
  for (const std::string ranks : {"", "--num_processes 2 --cp_size 2 "}) {
    for (const auto& [model, key] :
         {std::pair(window, "sliding_window"), {mixed, "sliding_attention"}, {chunked, "chunked_attention"}}) {
      const Outcome outcome = run("eval --json" + common(model) + "--eval_dataset " + kRows + " " + ranks);
      if (outcome.status == 0) {
        EXPECT_GT(std::abs(Json::parse(outcome.out)["eval_loss"].get<double>() - eval_loss("")), 1e-4) << model;
      } else {
        EXPECT_EQ(outcome.status, 3) << model;
        EXPECT_THAT(outcome.err, HasSubstr(key)) << model;
      }
    }
  }
}

// parallelism_config_cp_size without use_parallelism_config is dropped, and every rank takes a whole sequence.
TEST_F(Traps, SizesNeedNoOtherFlag) {
  for (const std::string key :
       {"--parallelism_config_cp_size 4", "--cp_size 4", "--parallelism_config.cp_size 4", "--sp_size 4"}) {
    const Json mesh = plan("--num_processes 8 " + key)["mesh"];
    EXPECT_EQ(mesh["cp"], 4) << key;
    EXPECT_EQ(mesh["dp_shard"], 2) << key;
  }
  expect_error("plan --model_name_or_path " + kModel + " --num_processes 6 --cp_size 4", 2, "num_processes");
  expect_error("plan --model_name_or_path " + kModel + " --num_processes 4 --cp_size 2 --dp_shard_size 1", 2,
               "num_processes");
  expect_error("plan --model_name_or_path " + kModel + " --num_processes 2 --tp_size 2", 2, "tp_size");
}

// The evaluation loss is a sum over ranks that share a sequence, or a mean of means; so is the count of tokens.
TEST_F(Traps, LossesAndCountsDoNotDependOnCp) {
  const double one = eval_loss("");
  const Json alone = step("one", "");
  for (const int cp : {2, 3, 4}) {
    const std::string ranks = "--num_processes " + std::to_string(cp) + " --cp_size " + std::to_string(cp);
    EXPECT_NEAR(eval_loss(ranks), one, 1e-6 * one) << ranks;
    const Json shared = step("cp" + std::to_string(cp), ranks);
    EXPECT_NEAR(shared["loss"].get<double>(), alone["loss"].get<double>(), 1e-6 * alone["loss"].get<double>());
    EXPECT_NEAR(shared["grad_norm"].get<double>(), alone["grad_norm"].get<double>(),
                1e-5 * alone["grad_norm"].get<double>());
    // No padding to a multiple of 2 cp, and none counted; pad_to_multiple_of changes nothing.
    EXPECT_EQ(shared["num_tokens"], alone["num_tokens"]);
    EXPECT_EQ(shared["target_tokens"], alone["target_tokens"]);
  }
  EXPECT_EQ(step("padded", "--pad_to_multiple_of 16")["num_tokens"], alone["num_tokens"]);
}

// max_length is 1,024 unless it is given: a book becomes its first page.
TEST_F(Traps, ABookIsNotCutUnasked) {
  std::string ids = "1";
  for (int i = 1; i < 1100; ++i) ids += ", " + std::to_string(i % 90);
  const std::string book = directory_.write("book.jsonl", "{\"input_ids\": [" + ids + "]}\n");
  expect_error("train --use_cpu --model_name_or_path " + kModel + " --dataset_name " + book + " --output_dir " +
                   (directory_ / "out"),
               2, "max_length");
}

}  // namespace
}  // namespace megatoken
