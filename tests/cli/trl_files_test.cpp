// Files as users of TRL and accelerate have them, run with nothing but the model's and the dataset's path replaced.
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli_test_support.h"

namespace megatoken {
namespace {

using testing::Directory;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::read_file;
using testing::run;
using Json = nlohmann::json;

const std::string kModel = std::string(MEGATOKEN_TEST_DATA) + "/golden/qwen3_tied";

// The settings of TRL 1.13's published example: Qwen3-8B on rows of 1,048,576 tokens.
constexpr const char* kPublished = R"(
output_dir: Qwen3-8B-1M
max_length: 1048576
per_device_train_batch_size: 1
logging_steps: 1
save_strategy: "no"
pad_to_multiple_of: 16
gradient_checkpointing_kwargs:
  offload: true
bf16: true
model_init_kwargs:
  dtype: bfloat16
  rope_parameters:
    rope_type: yarn
    rope_theta: 1000000
    factor: 32.0
    original_max_position_embeddings: 32768
)";
constexpr const char* kPublishedRanks = R"(
distributed_type: FSDP
mixed_precision: bf16
num_processes: 8
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_cpu_ram_efficient_loading: true
parallelism_config:
  parallelism_config_cp_size: 8
)";
// What `accelerate config` and TRL's own files write around the keys that matter.
constexpr const char* kAround = R"(
compute_environment: LOCAL_MACHINE
debug: false
downcast_bf16: 'no'
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
)";
constexpr const char* kContextParallel2 = R"(
distributed_type: FSDP
enable_cpu_affinity: false
num_processes: 2
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_activation_checkpointing_offload: true
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_cpu_ram_efficient_loading: true
  fsdp_offload_params: false
  fsdp_reshard_after_forward: true
  fsdp_state_dict_type: FULL_STATE_DICT
  fsdp_version: 2
parallelism_config:
  parallelism_config_dp_replicate_size: 1
  parallelism_config_dp_shard_size: 1
  parallelism_config_tp_size: 1
  parallelism_config_cp_size: 2
)";
constexpr const char* kUlysses4 = R"(
distributed_type: DEEPSPEED
num_processes: 4
deepspeed_config:
  zero_stage: 3
  seq_parallel_communication_data_type: bf16
  offload_optimizer_device: none
  offload_param_device: none
  zero3_init_flag: true
  zero3_save_16bit_model: true
parallelism_config:
  parallelism_config_dp_replicate_size: 1
  parallelism_config_dp_shard_size: 2
  parallelism_config_tp_size: 1
  parallelism_config_sp_size: 2
  parallelism_config_sp_backend: deepspeed
  parallelism_config_sp_seq_length_is_variable: true
  parallelism_config_sp_attn_implementation: flash_attention_2
)";

class TrlFiles : public ::testing::Test {
 protected:
  // One epoch; the losses of all steps.
  std::vector<double> train(const std::string& ranks, const std::string& more = "") {
    const std::string name = "out" + std::to_string(++runs_);
    const Outcome outcome =
        run("train " + directory_.write("sft.yaml", kPublished) + " --accelerate_config " +
            directory_.write("ranks.yaml", ranks) + " --model_name_or_path " + kModel + " --dataset_name " + kModel +
            "/train.jsonl --num_train_epochs 1 --output_dir " + (directory_ / name) + " --use_cpu " + more);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    said_ = outcome.out;
    std::vector<double> losses;
    std::istringstream log(read_file(directory_ / name + "/trainer_log.jsonl"));
    for (std::string line; std::getline(log, line);)
      if (const Json parsed = Json::parse(line); parsed.contains("loss")) losses.push_back(parsed["loss"]);
    return losses;
  }
  Directory directory_;
  std::string said_;
  int runs_ = 0;
};

TEST_F(TrlFiles, ThePublishedExample) {
  const auto losses = train(kPublishedRanks);
  EXPECT_EQ(losses.size(), 10u);  // one row a step: ranks share it
  EXPECT_THAT(said_, HasSubstr("8 ranks = dp_replicate 1 x dp_shard 1 x cp 8"));
  EXPECT_THAT(said_, HasSubstr("rope: yarn"));
}

constexpr const char* kFloat32 = "--model_init_kwargs.dtype float32 --bf16 false --mixed_precision no";

// In float32 the ranks don't change a loss, whatever file arranges them.
TEST_F(TrlFiles, ContextParallel) {
  const auto eight = train(kPublishedRanks, kFloat32);
  const auto two = train(std::string(kAround) + kContextParallel2, kFloat32);
  ASSERT_EQ(eight.size(), 10u);
  ASSERT_EQ(two.size(), 10u);
  for (std::size_t i = 0; i < two.size(); ++i) EXPECT_NEAR(two[i], eight[i], 1e-4 * eight[i]) << i;
}

TEST_F(TrlFiles, UlyssesOfDeepSpeed) {
  const auto losses = train(std::string(kAround) + kUlysses4);
  EXPECT_EQ(losses.size(), 5u);  // two rows a step, each shared by two ranks
  EXPECT_THAT(said_, HasSubstr("4 ranks = dp_replicate 1 x dp_shard 2 x cp 2"));
  EXPECT_THAT(said_, HasSubstr("sp_size 2 is taken as cp_size 2"));
}

}  // namespace
}  // namespace megatoken
