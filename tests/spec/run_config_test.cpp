#include "spec/run_config.h"

#include "spec/config_scalar.h"
#include "spec_test_support.h"

namespace megatoken {
namespace {

using testing::config_error;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::parse;

TEST(RunConfig, EmptyIsAllDefaults) {
  RunConfig expected;
  expected.source = "run.yaml";
  EXPECT_EQ(parse(""), expected);
  EXPECT_EQ(parse("# nothing\n"), expected);
  EXPECT_EQ(load_run_config("").training.learning_rate, 2e-5);
}

TEST(RunConfig, ATypicalFile) {
  const RunConfig c = parse(R"(
# Model
model_name_or_path: Qwen/Qwen3-0.6B
dtype: bfloat16
attn_implementation: flash_attention_2
dataset_name: books.jsonl
max_length: 1_048_576
per-device-train-batch-size: 1
gradient_accumulation_steps: 2
learning_rate: 2e-5
lr_scheduler_type: cosine_with_min_lr
lr_scheduler_kwargs: {min_lr_rate: 0.1}
warmup_steps: 0.05
gradient_checkpointing_kwargs:
  use_reentrant: false
  offload: true
eval_strategy: no
save_strategy: epoch
report_to: [wandb, tensorboard]
packing: false
use_peft: false
push_to_hub: no
env:
  NCCL_DEBUG: WARN
  OMP_NUM_THREADS: 4
device_memory: 24GiB
layer_input: host:14,device:7,recompute:7
attention_output: host
kv_block: 131072
token_tile: all
gradients: host
parameters: device
prefetch: 0
)");
  EXPECT_EQ(c.model.name_or_path, "Qwen/Qwen3-0.6B");
  EXPECT_EQ(c.model.dtype, DTypeChoice::bfloat16);
  EXPECT_EQ(c.data.max_length, 1048576);
  EXPECT_TRUE(c.data.max_length_given);
  EXPECT_EQ(c.training.per_device_train_batch_size, 1);
  EXPECT_EQ(std::get<double>(c.training.lr_scheduler_kwargs.at("min_lr_rate")), 0.1);
  EXPECT_EQ(c.training.warmup_steps, 0.05);
  EXPECT_THAT(c.planner.attention_output.runs, ElementsAre(LayerPin::Run{Keep::host, -1}));
  EXPECT_EQ(c.training.eval_strategy, Cadence::never);
  EXPECT_EQ(c.training.save_strategy, Cadence::epoch);
  EXPECT_THAT(c.training.env, ElementsAre(std::pair("NCCL_DEBUG", "WARN"), std::pair("OMP_NUM_THREADS", "4")));
  EXPECT_EQ(c.planner.device_memory, int64{24} << 30);
  EXPECT_THAT(c.planner.layer_input.runs, ElementsAre(LayerPin::Run{Keep::host, 14}, LayerPin::Run{Keep::device, 7},
                                                      LayerPin::Run{Keep::recompute, 7}));
  EXPECT_THAT(c.planner.attention_output.runs, ElementsAre(LayerPin::Run{Keep::host, -1}));
  EXPECT_EQ(c.planner.kv_block, 131072);
  EXPECT_EQ(c.planner.token_tile, 0);
  EXPECT_FALSE(c.planner.loss_tile.has_value());
  EXPECT_EQ(c.planner.gradients, PlaceChoice::host);
  EXPECT_EQ(c.planner.parameters, PlaceChoice::device);
  EXPECT_EQ(c.planner.prefetch, 0);
  EXPECT_THAT(c.notices, Contains(HasSubstr("accepted, no effect: attn_implementation (")));
  EXPECT_THAT(c.notices, Contains(HasSubstr("accepted, no effect: gradient_checkpointing_kwargs.use_reentrant")));
  EXPECT_THAT(c.notices, Contains(HasSubstr("accepted, no effect: report_to wandb (")));
  EXPECT_EQ(c.notices.size(), 3u);
  EXPECT_EQ(c.given.at("max_length"), "1048576");
}

TEST(RunConfig, UnknownKeysSuggestTheNearest) {
  EXPECT_EQ(config_error("seed: 1\nlearning_rte: 1\n"),
            "run.yaml:2: learning_rte: unknown key; did you mean learning_rate?");
  EXPECT_THAT(config_error("fsdp_config:\n  fsdp_ofload_params: true\n"),
              HasSubstr("run.yaml:2: fsdp_config.fsdp_ofload_params: unknown key; did you mean fsdp_offload_params?"));
  EXPECT_THAT(config_error("gradient_checkpointing_kwargs: {ofload: true}"),
              HasSubstr("did you mean gradient_checkpointing_kwargs.offload?"));
  EXPECT_THAT(config_error("", {{"max-lenght", {"5"}}}),
              HasSubstr("--max-lenght: unknown key; did you mean max_length?"));
  EXPECT_THAT(config_error("zzzzzzzzzz: 1"), HasSubstr("--help-keys lists all keys"));
  EXPECT_THAT(config_error("model_init_kwargs: {attention_dropout: 0.1}"),
              HasSubstr("model_init_kwargs.attention_dropout: unknown key"));
}

TEST(RunConfig, WrongTypesNameKeyLineAndExpectation) {
  EXPECT_EQ(config_error("\nlearning_rate: fast"), "run.yaml:2: learning_rate must be a number, not \"fast\"");
  EXPECT_EQ(config_error("max_steps: 1.5"), "run.yaml:1: max_steps must be a whole number, not 1.5");
  EXPECT_EQ(config_error("logging_first_step: 3"), "run.yaml:1: logging_first_step must be true or false, not 3");
  EXPECT_THAT(config_error("output_dir: 12"), HasSubstr("output_dir must be text (quote it), not 12"));
  EXPECT_THAT(config_error("output_dir: [a]"), HasSubstr("output_dir must be text, not [\"a\"]"));
  EXPECT_THAT(config_error("lr_scheduler_kwargs: 3"), HasSubstr("must be a dictionary, not 3"));
  EXPECT_THAT(config_error("fsdp_config: true"), HasSubstr("fsdp_config must be a dictionary"));
  EXPECT_THAT(config_error("learning_rate:\nseed: 1"), HasSubstr("run.yaml:1: learning_rate: has no value"));
  EXPECT_THAT(config_error("learning_rate: .nan"), HasSubstr("must be a number"));
  EXPECT_THAT(config_error("learning_rate: 1e999"), HasSubstr("must be a number"));
  EXPECT_THAT(config_error("seed: 99999999999999999999"), HasSubstr("seed must be a whole number"));
  EXPECT_THAT(config_error("seed: 007"), HasSubstr("seed must be a whole number, not \"007\""));
  EXPECT_THAT(config_error("sample_by: page"),
              HasSubstr("sample_by must be one of line, paragraph, document, not \"page\""));
  EXPECT_THAT(config_error("device_memory: lots"), HasSubstr("device_memory must be a size such as 24GiB"));
  EXPECT_THAT(config_error("device_memory: 0"), HasSubstr("must be a whole number of at least 1"));
  EXPECT_THAT(config_error("data_files: [a, [b]]\ndataset_name: json"), HasSubstr("must be text, or a list of texts"));
}

TEST(RunConfig, ValuesOutOfRange) {
  for (const char* yaml : {"gradient_accumulation_steps: 0",
                           "per_device_train_batch_size: -1",
                           "max_steps: 0",
                           "max_length: 1",
                           "learning_rate: -1",
                           "adam_beta1: 1.0",
                           "adam_beta2: 2",
                           "warmup_ratio: 1.5",
                           "warmup_steps: 2.5",
                           "logging_steps: 0",
                           "save_steps: 1.5",
                           "save_total_limit: 0",
                           "cp_size: 0",
                           "num_processes: 0",
                           "machine_rank: -1",
                           "num_machines: 0",
                           "main_process_port: 65536",
                           "token_tile: 0",
                           "layer_input: host:",
                           "layer_input: host:0",
                           "layer_input: 'host:3,'",
                           "layer_input: disk",
                           "layer_input: host:9999999999999999999",
                           "kv_block: some",
                           "num_train_epochs: 0",
                           "router_aux_loss_coef: -0.01",
                           "data_files: a.jsonl"})
    EXPECT_NE(config_error(yaml), "") << yaml;
}

TEST(RunConfig, RefusedKeysSayWhyAndAreFineWhenHarmless) {
  EXPECT_EQ(config_error("use_peft: true"),
            "run.yaml:1: use_peft: true is refused: adapters are not supported; all weights are trained");
  for (const char* yaml : {"fp16: true",
                           "packing: true",
                           "label_smoothing_factor: 0.1",
                           "neftune_noise_alpha: 5",
                           "load_in_4bit: true",
                           "trust_remote_code: true",
                           "push_to_hub: true",
                           "loss_type: dft",
                           "optim: adafactor",
                           "optim: adamw_bnb_8bit",
                           "optim: paged_adamw_8bit",
                           "lr_scheduler_type: reduce_lr_on_plateau",
                           "tp_size: 2",
                           "parallelism_config: {tp_size: 4}",
                           "mixed_precision: fp16",
                           "mixed_precision: fp8",
                           "dtype: float16",
                           "train_sampling_strategy: group_by_length",
                           "truncation_mode: keep_end",
                           "save_strategy: best",
                           "load_best_model_at_end: true",
                           "datasets: [{path: x}]",
                           "dataset_kwargs: {skip_prepare_dataset: true}",
                           "deepspeed: ds.json",
                           "dataloader_drop_last: true",
                           "distributed_type: MEGATRON_LM",
                           "average_tokens_across_devices: false",
                           "ignore_data_skip: true",
                           "assistant_only_loss: true",
                           "chat_template_path: a.jinja",
                           "deepspeed_config: {offload_param_device: nvme}",
                           "accelerator_config: {split_batches: true}"})
    EXPECT_THAT(config_error(yaml), HasSubstr(" is refused")) << yaml;
  for (const char* yaml : {"use_peft: false",
                           "fp16: no",
                           "packing: false",
                           "label_smoothing_factor: 0",
                           "label_smoothing_factor: 0.0",
                           "neftune_noise_alpha: null",
                           "push_to_hub: false",
                           "tp_size: 1",
                           "datasets: []",
                           "deepspeed:",
                           "optim_args: ''",
                           "loss_type: chunked_nll",
                           "optim: adamw_torch_fused",
                           "lora_r: 16",
                           "eval_delay: 0",
                           "dataset_kwargs:",
                           "dataset_kwargs: {}",
                           "save_safetensors: true",
                           "mixed_precision: 'no'",
                           "mixed_precision: no"})
    EXPECT_EQ(config_error(yaml), "") << yaml;
}

TEST(RunConfig, MalformedYaml) {
  EXPECT_THAT(config_error("seed: 1\nseed: 2\n"), HasSubstr("run.yaml:2: the key seed is given twice"));
  EXPECT_THAT(config_error("env:\n  A: 1\n  A: 2\n"), HasSubstr("run.yaml:3: the key A is given twice"));
  EXPECT_THAT(config_error("seed: [1\n"), HasSubstr("not valid YAML"));
  EXPECT_THAT(config_error("seed: 1\n  x: 2\n"), HasSubstr("run.yaml:2: not valid YAML"));
  EXPECT_THAT(config_error("- a\n- b\n"), HasSubstr("run.yaml:1: must hold keys and values"));
  EXPECT_THAT(config_error("just text"), HasSubstr("must hold keys and values"));
  EXPECT_THAT(config_error("seed: 1\n---\nseed: 2\n"), HasSubstr("holds 2 YAML documents"));
  EXPECT_THAT(config_error("seed: !!python/object:os.system 1"), HasSubstr("run.yaml:1: the tag"));
  EXPECT_THAT(config_error("a: &a {x: 1}\nb: {<<: *a}"), HasSubstr("merge keys (<<) are not supported"));
  EXPECT_THAT(config_error("env: &e\n  a: *e\n"), HasSubstr("nested too deeply"));
  EXPECT_THAT(config_error("env: {[1]: 2}"), HasSubstr("a key must be a word"));
  std::string bomb = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    bomb += fmt::format("a{0}: &a{0} [{1},{1},{1},{1},{1},{1},{1},{1},{1},{1}]\n", i, last);
  }
  EXPECT_THAT(config_error(bomb), HasSubstr("nested too deeply or too large"));
  EXPECT_NE(config_error(std::string(100000, '[')), "");
  EXPECT_NE(config_error(std::string("seed: \0 1", 9)), "");
  EXPECT_EQ(config_error("seed: 1\noutput_dir: a\xff"), "run.yaml:2: not valid UTF-8");
  EXPECT_EQ(config_error("a\xff: 1"), "run.yaml:1: not valid UTF-8");
  EXPECT_EQ(config_error("", {{"output_dir", {"\xff"}}}), "--output_dir: not valid UTF-8");
  EXPECT_THAT(config_error("\"se\\ned\": 1"), HasSubstr("run.yaml:1: se\\x0aed: unknown key"));
  EXPECT_THAT(config_error("optim: \"a\\nb\""), HasSubstr("a\\x0ab is refused"));
  EXPECT_THAT(testing::message_of(ExitCode::config, [] { load_run_config("/nowhere/run.yaml"); }),
              HasSubstr("/nowhere/run.yaml: No such file"));
  EXPECT_THAT(testing::message_of(ExitCode::config, [] { load_run_config("/tmp"); }), HasSubstr("is a directory"));
}

TEST(RunConfig, AliasesAreOneKey) {
  EXPECT_EQ(parse("torch_dtype: float32").model.dtype, DTypeChoice::float32);
  EXPECT_EQ(parse("max_seq_length: 99").data.max_length, 99);
  EXPECT_EQ(parse("evaluation_strategy: steps").training.eval_strategy, Cadence::steps);
  EXPECT_EQ(parse("cp_size: 4").parallel.cp, 4);
  EXPECT_EQ(config_error("dtype: float32\ntorch_dtype: float32"), "");
  EXPECT_EQ(config_error("dtype: float32\ntorch_dtype: bfloat16"),
            "run.yaml:2: torch_dtype: also given as run.yaml:1: dtype");
}

TEST(RunConfig, OverridesReplace) {
  const auto one = [](const std::string& key, std::vector<std::string> values) {
    return parse(
        "seed: 1\nlr_scheduler_type: cosine\nlr_scheduler_kwargs: {num_cycles: 2}\nreport_to: none\nbf16: true\n",
        {{key, std::move(values)}});
  };
  EXPECT_EQ(one("seed", {"7"}).data.seed, 7);
  EXPECT_EQ(one("max-steps", {"-1"}).training.max_steps, -1);
  EXPECT_EQ(one("bf16", {"False"}).training.bf16, false);
  EXPECT_EQ(one("bf16", {}).training.bf16, true);
  EXPECT_EQ(one("output_dir", {"123"}).training.output_dir, "123");
  EXPECT_EQ(one("max_length", {"null"}).data.max_length, std::nullopt);
  EXPECT_EQ(one("max_length", {"None"}).data.max_length, std::nullopt);
  EXPECT_EQ(
      std::get<double>(one("lr_scheduler_kwargs.num_cycles", {"3"}).training.lr_scheduler_kwargs.at("num_cycles")), 3);
  EXPECT_EQ(std::get<double>(
                one("lr_scheduler_kwargs", {R"({"num_cycles": 4})"}).training.lr_scheduler_kwargs.at("num_cycles")),
            4);
  EXPECT_TRUE(one("report_to", {"none", "tensorboard"}).training.tensorboard);
  EXPECT_FALSE(one("report_to", {"none"}).training.tensorboard);
  EXPECT_TRUE(one("report_to", {"wandb"}).training.tensorboard);
  EXPECT_EQ(one("fsdp_config.offload_params", {"true"}).planner.optimizer_state, PlaceChoice::host);
  EXPECT_EQ(one("fsdp_config", {R"({"offload_params": true})"}).planner.optimizer_state, PlaceChoice::host);
  EXPECT_EQ(one("eval_strategy", {"no"}).training.eval_strategy, Cadence::never);
  EXPECT_EQ(one("learning_rate", {"1e-4"}).training.learning_rate, 1e-4);
  EXPECT_EQ(parse("", {{"seed", {"1"}}, {"seed", {"2"}}}).data.seed, 2);
  EXPECT_EQ(one("rope_parameters.factor", {"4"}).model.rope.parameters_json, R"({"factor":4})");
  EXPECT_THAT(config_error("", {{"seed", {"1", "2"}}}), HasSubstr("--seed takes one value"));
  EXPECT_THAT(config_error("", {{"seed", {}}}), HasSubstr("--seed must be a whole number, not true"));
  EXPECT_THAT(config_error("", {{"seed", {""}}}), HasSubstr("--seed: has no value"));
  EXPECT_THAT(config_error("", {{"fsdp_config", {"3"}}}), HasSubstr("must be a dictionary"));
  EXPECT_THAT(config_error("", {{"lr_scheduler_kwargs", {"{"}}}), HasSubstr("not valid YAML"));
}

TEST(RunConfig, SchedulesAndTheirArguments) {
  for (const char* fine :
       {"lr_scheduler_type: linear", "lr_scheduler_type: constant",
        "lr_scheduler_type: cosine_with_restarts\nlr_scheduler_kwargs: {num_cycles: 3}",
        "lr_scheduler_type: polynomial\nlr_scheduler_kwargs: {power: 2.0, lr_end: 1e-6}",
        "lr_scheduler_type: inverse_sqrt\nlr_scheduler_kwargs: {timescale: null}",
        "lr_scheduler_type: cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr: 1e-6}",
        "lr_scheduler_type: cosine_warmup_with_min_lr\nlr_scheduler_kwargs: {min_lr_rate: 0.1, warmup_lr_rate: 0.2}",
        "lr_scheduler_type: warmup_stable_decay\nlr_scheduler_kwargs: {num_decay_steps: 4, decay_type: 1-sqrt}",
        "lr_scheduler_type: constant_with_warmup"})
    EXPECT_EQ(config_error(fine), "") << fine;
  EXPECT_THAT(config_error("lr_scheduler_type: cosin"), HasSubstr("must be one of linear, cosine"));
  EXPECT_THAT(config_error("lr_scheduler_kwargs: {num_cycles: 2}"),
              HasSubstr("the linear schedule has no argument num_cycles (it has none)"));
  EXPECT_THAT(config_error("lr_scheduler_type: cosine_with_restarts\nlr_scheduler_kwargs: {num_cycles: 1.5}"),
              HasSubstr("must be a whole number"));
  EXPECT_THAT(config_error("lr_scheduler_type: cosine_with_min_lr"), HasSubstr("either min_lr or min_lr_rate"));
  EXPECT_THAT(config_error("lr_scheduler_type: cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr: 0, min_lr_rate: 0}"),
              HasSubstr("either"));
  EXPECT_THAT(config_error("lr_scheduler_type: warmup_stable_decay"), HasSubstr("needs num_decay_steps"));
  EXPECT_THAT(
      config_error("lr_scheduler_type: warmup_stable_decay\nlr_scheduler_kwargs: {num_decay_steps: 4, warmup_type: x}"),
      HasSubstr("warmup_type must be one of"));
  EXPECT_THAT(config_error("lr_scheduler_type: polynomial\nlearning_rate: 1e-8"), HasSubstr("lr_end"));
}

TEST(RunConfig, Rope) {
  const RunConfig c =
      parse("model_init_kwargs:\n  rope_scaling: {rope_type: yarn, factor: 4.0}\n  max_position_embeddings: 4096\n");
  EXPECT_EQ(c.model.rope.key, "model_init_kwargs.rope_scaling");
  EXPECT_EQ(c.model.rope.parameters_json, R"({"rope_type":"yarn","factor":4.0})");
  EXPECT_EQ(c.model.rope.max_position_embeddings, 4096);
  EXPECT_THAT(config_error("rope_scaling: {factor: 2}\nmodel_init_kwargs: {rope_parameters: {factor: 2}}"),
              HasSubstr("the rope is already given by rope_scaling"));
}

TEST(RunConfig, AccelerateProfilesAndFiles) {
  const RunConfig fsdp = parse("accelerate_config: fsdp2\n");
  EXPECT_EQ(fsdp.parallel.num_processes, 8);
  EXPECT_TRUE(fsdp.training.mixed_precision_bf16);
  EXPECT_THAT(fsdp.notices, IsEmpty());
  EXPECT_EQ(parse("accelerate_config: zero3\nnum_processes: 2").parallel.num_processes, 2);
  EXPECT_EQ(parse("accelerate_config: single_gpu").parallel.num_processes, 1);
  EXPECT_EQ(parse("accelerate_config: single_gpu", {{"num_processes", {"4"}}}).parallel.num_processes, 4);
  EXPECT_EQ(parse("distributed_type: NO\nnum_processes: 8").parallel.num_processes, 1);
  EXPECT_THAT(config_error("accelerate_config: fsdp3"),
              HasSubstr("neither a file nor a profile (fsdp1, fsdp2, multi_gpu"));

  testing::TemporaryDirectory directory;
  const std::string file = directory.write("cp.yaml", R"(compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_activation_checkpointing_offload: 'true'
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_offload_params: true
  fsdp_version: 2
mixed_precision: bf16
num_machines: 1
num_processes: 8
parallelism_config:
  parallelism_config_cp_comm_strategy: alltoall
  parallelism_config_cp_size: 4
  parallelism_config_dp_replicate_size: 1
  parallelism_config_dp_shard_size: 2
  parallelism_config_tp_size: 1
use_cpu: false
)");
  const RunConfig cp = parse("accelerate_config: " + file);
  EXPECT_EQ(cp.parallel.cp, 4);
  EXPECT_EQ(cp.parallel.dp_shard, 2);
  EXPECT_EQ(cp.parallel.exchange, KvExchange::ring);
  EXPECT_EQ(cp.planner.optimizer_state, PlaceChoice::host);
  EXPECT_THAT(cp.planner.layer_input.runs, ElementsAre(LayerPin::Run{Keep::host, -1}));
  EXPECT_THAT(cp.notices, Contains(HasSubstr("fsdp_auto_wrap_policy")));
  EXPECT_EQ(parse("cp_size: 8\naccelerate_config: " + file).parallel.cp, 8);

  directory.write("run.yaml", "accelerate_config: cp.yaml\n");
  EXPECT_EQ(load_run_config(directory.path() + "/run.yaml").parallel.cp, 4);
  const std::string wrong = directory.write("wrong.yaml", "learning_rate: 1\n");
  EXPECT_THAT(config_error("accelerate_config: " + wrong),
              HasSubstr("wrong.yaml:1: learning_rate: is no key of an accelerate"));
}

TEST(RunConfig, SequenceParallelIsTakenAsContextParallel) {
  const RunConfig c = parse("parallelism_config: {sp_size: 4, sp_backend: deepspeed}");
  EXPECT_EQ(c.parallel.cp, 4);
  EXPECT_THAT(c.notices, Contains(HasSubstr("sp_size 4 is taken as cp_size 4")));
  EXPECT_EQ(parse("sp_size: 1\ncp_size: 2").parallel.cp, 2);
  EXPECT_THAT(config_error("sp_size: 4\ncp_size: 2"), HasSubstr("contradicts cp_size 2"));
}

TEST(RunConfig, HostPlacements) {
  EXPECT_EQ(parse("deepspeed_config: {offload_optimizer_device: cpu, zero_stage: 2}").planner.optimizer_state,
            PlaceChoice::host);
  EXPECT_EQ(parse("deepspeed_config: {offload_param_device: none}").planner.optimizer_state, PlaceChoice::automatic);
  EXPECT_EQ(parse("fsdp: full_shard auto_wrap offload").planner.optimizer_state, PlaceChoice::host);
  EXPECT_EQ(parse("fsdp: offload\noptimizer_state: device").planner.optimizer_state, PlaceChoice::device);
  EXPECT_EQ(parse("fsdp: true").planner.optimizer_state, PlaceChoice::automatic);
  EXPECT_NE(config_error("fsdp: ful_shard"), "");
  EXPECT_EQ(parse("fsdp_config: {cpu_offload: true}").planner.optimizer_state, PlaceChoice::host);
  EXPECT_EQ(parse("activation_offloading: true\nlayer_input: auto").planner.layer_input.runs.size(), 0u);
  EXPECT_THAT(parse("gradient_checkpointing: false").notices, Contains(HasSubstr("gradient_checkpointing false")));
  EXPECT_EQ(parse("use_cpu: true").model.device, DeviceChoice::cpu);
  EXPECT_THAT(config_error("device: cuda\nuse_cpu: true"), HasSubstr("contradicts device: cuda"));
}

TEST(RunConfig, DTypes) {
  const auto resolve = [](const std::string& yaml, bool cuda, std::optional<DType> stored = std::nullopt) {
    const RunDTypes d = resolve_dtypes(parse(yaml), cuda, stored);
    return std::string(name_of(d.compute)) + " " + std::string(name_of(d.saved));
  };
  EXPECT_EQ(resolve("", false), "float32 float32");
  EXPECT_EQ(resolve("", true), "bfloat16 bfloat16");
  EXPECT_EQ(resolve("bf16: true", false), "bfloat16 bfloat16");
  EXPECT_EQ(resolve("mixed_precision: bf16", false), "bfloat16 bfloat16");
  EXPECT_EQ(resolve("dtype: bfloat16", false), "bfloat16 bfloat16");
  EXPECT_EQ(resolve("dtype: float32", false), "float32 float32");
  EXPECT_EQ(resolve("dtype: float32\nbf16: true", false), "bfloat16 float32");
  EXPECT_EQ(resolve("dtype: float32", true), "bfloat16 float32");
  EXPECT_EQ(resolve("dtype: auto", false, DType::bf16), "bfloat16 bfloat16");
  EXPECT_EQ(resolve("dtype: auto", false, DType::f32), "float32 float32");
  EXPECT_EQ(resolve("dtype: auto", false, DType::f16), "bfloat16 bfloat16");
  EXPECT_EQ(resolve("bf16: false", false), "float32 float32");
  EXPECT_THAT(testing::message_of(ExitCode::config, [&] { resolve("bf16: false", true); }),
              HasSubstr("bf16: false is refused on CUDA"));
}

TEST(RunConfig, MeshIsTheProduct) {
  const auto mesh = [](const std::string& yaml, int64 n) {
    const Mesh m = resolve_mesh(parse(yaml).parallel, n);
    return fmt::format("{} {} {}", m.dp_replicate, m.dp_shard, m.cp);
  };
  EXPECT_EQ(mesh("", 1), "1 1 1");
  EXPECT_EQ(mesh("", 8), "1 8 1");
  EXPECT_EQ(mesh("cp_size: 4", 8), "1 2 4");
  EXPECT_EQ(mesh("cp_size: 2\ndp_replicate_size: 2", 8), "2 2 2");
  EXPECT_EQ(mesh("cp_size: 8\ndp_shard_size: -1", 8), "1 1 8");
  for (const char* wrong :
       {"cp_size: 3", "cp_size: 16", "cp_size: 2\ndp_shard_size: 2", "dp_replicate_size: 8\ncp_size: 2"})
    EXPECT_THAT(testing::message_of(ExitCode::config, [&] { mesh(wrong, 8); }),
                HasSubstr("num_processes 8 must equal"));
}

TEST(RunConfig, StepsAndFractions) {
  EXPECT_EQ(resolve_interval(10, 100), 10);
  EXPECT_EQ(resolve_interval(0.1, 95), 10);
  EXPECT_EQ(resolve_interval(0.001, 5), 1);
  EXPECT_EQ(resolve_warmup(parse("warmup_steps: 7").training, 100), 7);
  EXPECT_EQ(resolve_warmup(parse("warmup_steps: 0.03").training, 101), 4);
  EXPECT_EQ(resolve_warmup(parse("warmup_ratio: 0.03").training, 101), 4);
  EXPECT_EQ(resolve_warmup(parse("warmup_steps: 5\nwarmup_ratio: 0.5").training, 101), 5);
  EXPECT_EQ(resolve_warmup(parse("").training, 101), 0);
}

TEST(ConfigScalar, WhatWordsMean) {
  EXPECT_TRUE(resolve_scalar("").is_null());
  EXPECT_TRUE(resolve_scalar("~").is_null());
  EXPECT_EQ(resolve_scalar("Yes"), true);
  EXPECT_EQ(resolve_scalar("NO"), false);
  EXPECT_EQ(resolve_scalar("nO"), "nO");
  EXPECT_EQ(resolve_scalar("+5"), 5);
  EXPECT_EQ(resolve_scalar("-0.5e-3"), -0.0005);
  EXPECT_EQ(resolve_scalar("2e-5"), 2e-5);
  EXPECT_EQ(resolve_scalar("1_000"), 1000);
  EXPECT_EQ(resolve_scalar("1-sqrt"), "1-sqrt");
  EXPECT_EQ(resolve_scalar("-"), "-");
  EXPECT_EQ(resolve_scalar("e"), "e");
  EXPECT_EQ(resolve_scalar("1.2.3"), "1.2.3");
  EXPECT_EQ(resolve_scalar(".5"), 0.5);
  EXPECT_EQ(resolve_scalar("2026-12-01"), "2026-12-01");
}

TEST(ConfigScalar, Sizes) {
  EXPECT_EQ(parse_bytes("24GiB"), int64{24} << 30);
  EXPECT_EQ(parse_bytes("80 GB"), 80000000000);
  EXPECT_EQ(parse_bytes("1.5tib"), int64{3} << 39);
  EXPECT_EQ(parse_bytes("512MiB"), int64{512} << 20);
  EXPECT_EQ(parse_bytes("4096"), 4096);
  for (const char* wrong : {"", "GiB", "24G", "24GiBs", "-1GiB", "1e3GiB", "0", "nan", "9999999999TiB", "1..5GiB"})
    EXPECT_EQ(parse_bytes(wrong), std::nullopt) << wrong;
}

}  // namespace
}  // namespace megatoken
