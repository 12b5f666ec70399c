// Keys of ranks and sharding: accelerate's configuration files, TrainingArguments' fsdp and deepspeed, and short forms.
#include "spec/run_config.h"
#include "spec/run_config_keys.h"

namespace megatoken {
namespace {

using enum ValueType;

constexpr int64 kMostRanks = 1 << 20;

// A pin of optimizer_state itself comes later and wins.
void offload_state(RunConfig& config) { config.planner.optimizer_state = PlaceChoice::host; }

void set_offload_params(RunConfig& config, const KeyValue& value) {
  if (!value.is_null() && value.flag()) offload_state(config);
}

// The words of TrainingArguments' fsdp: sharding strategies only arrange memory; offload is honoured.
void set_fsdp(RunConfig& config, const KeyValue& value) {
  if (value.is_null() || value.json().is_boolean()) return;
  for (const std::string& words : value.texts()) {
    std::string_view rest = words;
    while (!rest.empty()) {
      const auto space = rest.find(' ');
      const std::string_view word = rest.substr(0, space);
      rest = space == std::string_view::npos ? std::string_view{} : rest.substr(space + 1);
      if (word == "offload") offload_state(config);
      const bool known = word.empty() || word == "offload" || word == "full_shard" || word == "shard_grad_op" ||
                         word == "no_shard" || word == "hybrid_shard" || word == "hybrid_shard_zero2" ||
                         word == "auto_wrap" || word == "true" || word == "false";
      if (!known) value.expected("true, or words out of full_shard, shard_grad_op, hybrid_shard, auto_wrap, offload");
    }
  }
}

template <std::optional<int64> ParallelOptions::*kSize>
void set_size(RunConfig& config, const KeyValue& value) {
  if (!value.is_null()) config.parallel.*kSize = value.integer(1, kMostRanks);
}

void set_shard_size(RunConfig& config, const KeyValue& value) {
  if (value.is_null() || value.json() == -1) return;  // what is left
  config.parallel.dp_shard = value.integer(1, kMostRanks);
}

void set_sequence_parallel(RunConfig& config, const KeyValue& value) {
  if (value.is_null()) return;
  const int64 size = value.integer(1, kMostRanks);
  if (size == 1) return;
  if (config.parallel.cp.value_or(1) > 1 && *config.parallel.cp != size)
    value.fail("{} contradicts cp_size {}: both cut the sequence", size, *config.parallel.cp);
  config.parallel.cp = size;
  config.notices.push_back(
      fmt::format("sp_size {} is taken as cp_size {}: the sequence is cut the same way", size, size));
}

void set_distributed_type(RunConfig&, const KeyValue& value) {
  const std::string name = value.json() == false ? "NO" : value.text();
  for (const std::string_view known : {"NO", "MULTI_GPU", "MULTI_CPU", "FSDP", "DEEPSPEED"})
    if (name == known) return;
  value.fail("{} is refused (supported: NO, MULTI_GPU, MULTI_CPU, FSDP, DEEPSPEED)", name);
}

// DeepSpeed's offload devices; nvme is refused.
bool offloads(const KeyValue& value) {
  if (value.is_null()) return false;
  if (value.json() == "nvme") value.fail("nvme is refused: state lives in device or host memory");
  return value.choice<bool>({{"none", false}, {"cpu", true}});
}

constexpr std::string_view kFsdp = "sharding is planned, and the result doesn't depend on it";
constexpr std::string_view kLauncher = "ranks are started by num_processes or by the launcher that is already there";
constexpr std::string_view kDdp = "gradients are reduced in flat buckets, without timeouts of their own";
constexpr std::string_view kTpu = "it only applies to TPUs";
constexpr std::string_view kOneSequence = "the sequence is cut by cp, whose lengths may vary";
constexpr std::string_view kDeepSpeed = "sharding is planned, and the result doesn't depend on it";

const KeyInfo kRows[] = {
    honoured("accelerate_config", text, "",
             "an accelerate configuration file, or a profile: fsdp1, fsdp2, multi_gpu, single_gpu, zero1, zero2, zero3",
             [](RunConfig&, const KeyValue&) {})  // its keys have been put under those of the run
        .or_null()
        .also("config_file"),
    honoured("num_processes", integer, "", "ranks over all machines; not set: the launcher's, or 1",
             [](RunConfig& c, const KeyValue& v) {
               if (v.is_null()) return;
               const int64 ranks = v.integer(-1, kMostRanks);
               if (ranks == 0) v.expected("positive");
               if (ranks > 0) c.parallel.num_processes = ranks;
             })
        .or_null(),
    honoured("distributed_type", choice, "", "NO means one process; the others arrange ranks as the mesh says",
             set_distributed_type),
    honoured("num_machines", integer, "1", "hosts; each runs num_processes / num_machines ranks, as threads of one process",
             [](RunConfig& c, const KeyValue& v) { c.parallel.num_machines = v.integer(1, kMostRanks); }),
    honoured("machine_rank", integer, "", "which of num_machines this host is; under a launcher it goes by the launcher's word",
             [](RunConfig& c, const KeyValue& v) {
               if (!v.is_null()) c.parallel.machine_rank = v.integer(0, kMostRanks);
             })
        .or_null(),
    honoured("main_process_ip", text, "", "address or name of machine 0, where all ranks meet; MASTER_ADDR comes first",
             [](RunConfig& c, const KeyValue& v) { c.parallel.main_process_ip = v.text(); })
        .or_null(),
    honoured("main_process_port", integer, "", "a free port of machine 0; MASTER_PORT comes first",
             [](RunConfig& c, const KeyValue& v) {
               if (v.is_null()) return;
               if (const int64 port = v.integer(0, 65535); port > 0) c.parallel.main_process_port = port;
             })
        .or_null(),

    container_row("parallelism_config", "accelerate's mesh"),
    honoured("parallelism_config_cp_size", integer, "1", "ranks that share a sequence", set_size<&ParallelOptions::cp>)
        .or_null()
        .also("cp_size"),
    honoured("parallelism_config_dp_shard_size", integer, "",
             "ranks with rows of their own that share one copy of the state; not set or -1: what is left",
             set_shard_size)
        .or_null()
        .also("dp_shard_size"),
    honoured("parallelism_config_dp_replicate_size", integer, "1", "copies of the whole state",
             set_size<&ParallelOptions::dp_replicate>)
        .or_null()
        .also("dp_replicate_size"),
    honoured("parallelism_config_sp_size", integer, "1", "taken as cp_size", set_sequence_parallel)
        .or_null()
        .also("sp_size"),
    honoured("parallelism_config_cp_comm_strategy", choice, "",
             "how keys reach the queries: allgather, or alltoall (a ring: least memory); not set: planned",
             [](RunConfig& c, const KeyValue& v) {
               if (v.is_null()) return;
               c.parallel.exchange = v.choice<KvExchange>(
                   {{"allgather", KvExchange::allgather}, {"alltoall", KvExchange::ring}, {"ring", KvExchange::ring}});
             })
        .or_null()
        .also("cp_comm_strategy"),
    KeyInfo(refused("parallelism_config_tp_size", "1|-1|0", "tensor parallelism is not supported")).also("tp_size"),
    accepted("parallelism_config_cp_backend", kOneSequence),
    accepted("parallelism_config_sp_backend", kOneSequence),
    accepted("parallelism_config_sp_seq_length", kOneSequence),
    accepted("parallelism_config_sp_seq_length_is_variable", kOneSequence),
    accepted("parallelism_config_sp_attn_implementation", kOneSequence),
    accepted("parallelism_config_cp_handler", kOneSequence),
    accepted("parallelism_config_sp_handler", kOneSequence),
    accepted("use_parallelism_config", "the mesh is what the sizes say"),

    honoured("fsdp", list, "", "offload among its words is honoured; the others arrange memory, which is planned",
             set_fsdp)
        .or_null(),
    container_row("fsdp_config", "accelerate's and transformers' sharding options"),
    honoured("fsdp_offload_params", flag, "false",
             "optimizer state lives in host memory, as with optimizer_state: host; weights and gradients are where the "
             "planner puts them",
             set_offload_params)
        .also("fsdp_cpu_offload")
        .or_null(),
    honoured("fsdp_activation_checkpointing_offload", flag, "false", "as activation_offloading",
             [](RunConfig& c, const KeyValue& v) {
               if (!v.is_null() && v.flag()) offload_activations(c);
             })
        .or_null(),
    accepted("fsdp_activation_checkpointing", "layers are always recomputed from what they keep"),
    accepted("fsdp_version", kFsdp),
    accepted("fsdp_min_num_params", kFsdp),
    accepted("fsdp_sharding_strategy", kFsdp),
    accepted("fsdp_reshard_after_forward", kFsdp),
    accepted("fsdp_auto_wrap_policy", kFsdp),
    accepted("fsdp_transformer_layer_cls_to_wrap", kFsdp),
    accepted("fsdp_backward_prefetch", kFsdp),
    accepted("fsdp_backward_prefetch_policy", kFsdp),
    accepted("fsdp_forward_prefetch", kFsdp),
    accepted("fsdp_limit_all_gathers", kFsdp),
    accepted("fsdp_state_dict_type", "checkpoints and the model have one format"),
    accepted("fsdp_use_orig_params", kFsdp),
    accepted("fsdp_cpu_ram_efficient_loading", "each rank reads only its slices"),
    accepted("fsdp_sync_module_states", "each rank reads only its slices"),
    accepted("use_fsdp", kFsdp),
    refused("fsdp_xla", "false", "TPUs are not supported"),
    refused("fsdp_xla_fsdp_v2", "false", "TPUs are not supported"),
    refused("fsdp_xla_fsdp_grad_ckpt", "false", "TPUs are not supported"),
    refused("fsdp_xla_fsdp_settings", "", "TPUs are not supported"),

    container_row("deepspeed_config", "accelerate's DeepSpeed options"),
    honoured("deepspeed_config.offload_optimizer_device", choice, "none", "cpu: as optimizer_state: host",
             [](RunConfig& c, const KeyValue& v) {
               if (offloads(v)) offload_state(c);
             })
        .or_null(),
    honoured("deepspeed_config.offload_param_device", choice, "none", "cpu: as fsdp_offload_params",
             [](RunConfig& c, const KeyValue& v) {
               if (offloads(v)) offload_state(c);
             })
        .or_null(),
    accepted("deepspeed_config.zero_stage", kDeepSpeed),
    accepted("deepspeed_config.zero3_init_flag", kDeepSpeed),
    accepted("deepspeed_config.zero3_save_16bit_model", "the saved dtype is that of the weights"),
    accepted("deepspeed_config.deepspeed_multinode_launcher", kLauncher),
    accepted("deepspeed_config.deepspeed_hostfile", kLauncher),
    accepted("deepspeed_config.deepspeed_exclusion_filter", kLauncher),
    accepted("deepspeed_config.deepspeed_inclusion_filter", kLauncher),
    accepted("deepspeed_config.deepspeed_moe_layer_cls_names", kDeepSpeed),
    accepted("deepspeed_config.seq_parallel_communication_data_type", "keys travel in the dtype they are computed in"),
    accepted("deepspeed_config.offload_optimizer_nvme_path", "it only applies with nvme"),
    accepted("deepspeed_config.offload_param_nvme_path", "it only applies with nvme"),
    accepted("deepspeed_config.gradient_accumulation_steps", "the run's own gradient_accumulation_steps holds"),
    accepted("deepspeed_config.gradient_clipping", "the run's own max_grad_norm holds"),
    refused("deepspeed_config.deepspeed_config_file", R"("")", "DeepSpeed's own files are not read"),
    accepted("use_deepspeed", kDeepSpeed),
    refused("deepspeed", R"("")", "DeepSpeed's own files are not read; use accelerate_config: zero1, zero2 or zero3"),

    container_row("accelerator_config", "transformers' options of the Accelerator"),
    refused("accelerator_config.split_batches", "false", "batch sizes are per device"),
    refused("accelerator_config.even_batches", "true", "rows are dealt evenly over ranks"),
    accepted("accelerator_config.dispatch_batches", "every rank reads its own rows"),
    accepted("accelerator_config.use_seedable_sampler", "the order of rows always follows data_seed"),
    accepted("accelerator_config.non_blocking", kDdp),
    accepted("accelerator_config.gradient_accumulation_kwargs", kDdp),
    accepted("accelerator_config.use_configured_state", kDdp),

    accepted("ddp_find_unused_parameters", kDdp),
    accepted("ddp_bucket_cap_mb", kDdp),
    accepted("ddp_broadcast_buffers", kDdp),
    accepted("ddp_static_graph", kDdp),
    accepted("ddp_backend", "the devices decide: NCCL on GPUs, Gloo between CPU processes"),
    accepted("ddp_timeout", "heartbeats find a lost rank"),
    accepted("local_rank", kLauncher),
    accepted("compute_environment", kLauncher),
    accepted("debug", "checks are always on"),
    accepted("downcast_bf16", kTpu),
    accepted("enable_cpu_affinity", "threads are placed by the program"),
    accepted("num_cpu_threads_per_process", "cores are shared out among the ranks of a host"),
    accepted("gpu_ids", "set CUDA_VISIBLE_DEVICES to choose GPUs"),
    accepted("main_training_function", kLauncher),
    accepted("rdzv_backend", kLauncher),
    accepted("rdzv_conf", kLauncher),
    accepted("same_network", kLauncher),
    accepted("max_restarts", kLauncher),
    accepted("monitor_interval", kLauncher),
    accepted("mpirun_config", kLauncher),
    accepted("ray_scope", kLauncher),
    accepted("dynamo_config", "kernels are compiled ahead of time"),
    accepted("dynamo_backend", "kernels are compiled ahead of time"),
    accepted("tpu_name", kTpu),
    accepted("tpu_zone", kTpu),
    accepted("tpu_use_cluster", kTpu),
    accepted("tpu_use_sudo", kTpu),
    accepted("tpu_env", kTpu),
    accepted("tpu_vm", kTpu),
    accepted("tpu_num_cores", kTpu),
    accepted("tpu_metrics_debug", kTpu),
    accepted("command_file", kTpu),
    accepted("commands", kTpu),
    accepted("mp_parameters", "it only applies to SageMaker"),
    refused("fp8_config", "", "training runs in bfloat16 or float32"),
    refused("megatron_lm_config", "", "Megatron-LM is not supported"),
    refused("per_gpu_train_batch_size", "", "it is per_device_train_batch_size today"),
    refused("per_gpu_eval_batch_size", "", "it is per_device_eval_batch_size today"),
};

}  // namespace

std::span<const KeyInfo> parallel_key_rows() { return kRows; }

}  // namespace megatoken
