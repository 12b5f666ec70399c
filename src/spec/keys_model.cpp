// Keys of the model (TRL's ModelConfig and model_init_kwargs).
#include "spec/run_config.h"
#include "spec/run_config_keys.h"

namespace megatoken {
namespace {

using enum ValueType;

void set_dtype(RunConfig& config, const KeyValue& value) {
  if (value.is_null()) return;
  const std::string name = value.text();
  if (name == "float16" || name == "fp16" || name == "half")
    value.fail("float16 is refused: training runs in bfloat16 or float32");
  config.model.dtype = value.choice<DTypeChoice>(
      {{"auto", DTypeChoice::automatic}, {"bfloat16", DTypeChoice::bfloat16}, {"float32", DTypeChoice::float32}});
}

template <int kSpelling>
void set_rope(RunConfig& config, const KeyValue& value) {
  static constexpr const char* kNames[] = {"rope_parameters", "rope_scaling", "model_init_kwargs.rope_parameters",
                                           "model_init_kwargs.rope_scaling"};
  if (value.is_null()) return;
  if (!config.model.rope.parameters_json.empty()) value.fail("the rope is already given by {}", config.model.rope.key);
  config.model.rope.key = kNames[kSpelling];
  config.model.rope.parameters_json = value.json().dump();
}

constexpr std::string_view kOneKernel = "there is one attention, exact at any length";
constexpr std::string_view kLora = "it only applies with use_peft";
constexpr std::string_view kQuantized = "quantised weights can't be trained";
constexpr std::string_view kRemote = "a model's own Python code can't be run";
constexpr std::string_view kPlacement = "weights are placed by the plan";

const KeyInfo kRows[] = {
    honoured("model_name_or_path", text, "", "the model: a directory, or a name found in the local Hugging Face cache",
             [](RunConfig& c, const KeyValue& v) { c.model.name_or_path = v.text(); })
        .or_null(),
    honoured("model_revision", text, "main", "branch, tag or commit of a model in the local cache",
             [](RunConfig& c, const KeyValue& v) { c.model.revision = v.text(); })
        .also("revision"),
    honoured("dtype", choice, "",
             "of the gathered weights and the saved model: float32, bfloat16, or auto (the checkpoint's); masters are "
             "always float32. Not set: bfloat16 on CUDA or with bf16, else float32",
             set_dtype)
        .or_null()
        .also("torch_dtype"),
    honoured("rope_parameters", map, "",
             "the rope to train with, instead of config.json's: {rope_type, factor, ...}; rope_theta is kept if absent",
             set_rope<0>)
        .or_null(),
    honoured("rope_scaling", map, "", "the older spelling of rope_parameters", set_rope<1>).or_null(),
    container_row("model_init_kwargs", "keys of config.json to change, and transformers' loading options"),
    honoured("model_init_kwargs.dtype", choice, "", "as dtype, which it overrides", set_dtype)
        .or_null()
        .also("model_init_kwargs.torch_dtype"),
    honoured("model_init_kwargs.rope_parameters", map, "", "as rope_parameters", set_rope<2>).or_null(),
    honoured("model_init_kwargs.rope_scaling", map, "", "as rope_scaling", set_rope<3>).or_null(),
    honoured("model_init_kwargs.max_position_embeddings", integer, "", "replaces config.json's",
             [](RunConfig& c, const KeyValue& v) {
               c.model.rope.max_position_embeddings = v.integer(1, int64{1} << 48);
               if (c.model.rope.key.empty()) c.model.rope.key = "model_init_kwargs.max_position_embeddings";
             }),
    honoured("model_init_kwargs.revision", text, "", "as model_revision, which it overrides",
             [](RunConfig& c, const KeyValue& v) { c.model.revision = v.text(); }),
    accepted("model_init_kwargs.attn_implementation", kOneKernel),
    accepted("model_init_kwargs.device_map", kPlacement),
    accepted("model_init_kwargs.low_cpu_mem_usage", kPlacement),
    accepted("model_init_kwargs.use_cache", "nothing is generated"),
    accepted("model_init_kwargs.use_kernels", "kernels are built in"),
    accepted("model_init_kwargs.cache_dir", "the cache is found by HF_HOME and HF_HUB_CACHE"),
    accepted("model_init_kwargs.local_files_only", "nothing is ever downloaded"),
    refused("model_init_kwargs.trust_remote_code", "false", kRemote),
    refused("model_init_kwargs.quantization_config", "", kQuantized),
    honoured("device", choice, "auto", "auto (CUDA when there is a GPU), cpu or cuda",
             [](RunConfig& c, const KeyValue& v) {
               c.model.device = v.choice<DeviceChoice>(
                   {{"auto", DeviceChoice::automatic}, {"cpu", DeviceChoice::cpu}, {"cuda", DeviceChoice::cuda}});
             }),
    honoured("use_cpu", flag, "false", "true: the same as device: cpu",
             [](RunConfig& c, const KeyValue& v) {
               if (!v.flag()) return;
               if (c.model.device == DeviceChoice::cuda) v.fail("contradicts device: cuda");
               c.model.device = DeviceChoice::cpu;
             })
        .also("no_cuda"),
    honoured("router_aux_loss_coef", number, "",
             "weight of the experts' load-balancing loss in training; 0: none. Not set: config.json's where that has "
             "output_router_logits, else none",
             [](RunConfig& c, const KeyValue& v) { c.model.router_aux_loss_coef = v.number(0, 1e6); })
        .or_null(),
    honoured("init_from_config", flag, "false",
             "start from random weights; only config.json and the tokenizer are read",
             [](RunConfig& c, const KeyValue& v) { c.model.init_from_config = v.flag(); }),

    accepted("attn_implementation", kOneKernel),
    accepted("use_cache", "nothing is generated"),
    accepted("ignore_bias_buffers", "there are no buffers to synchronise"),
    accepted("lora_r", kLora),
    accepted("lora_alpha", kLora),
    accepted("lora_dropout", kLora),
    accepted("lora_target_modules", kLora),
    accepted("lora_target_parameters", kLora),
    accepted("lora_modules_to_save", kLora),
    accepted("lora_task_type", kLora),
    accepted("bnb_4bit_quant_type", "it only applies with load_in_4bit"),
    accepted("bnb_4bit_quant_storage", "it only applies with load_in_4bit"),
    refused("use_peft", "false", "adapters are not supported; all weights are trained"),
    refused("use_rslora", "false", "adapters are not supported"),
    refused("use_dora", "false", "adapters are not supported"),
    refused("load_in_8bit", "false", kQuantized),
    refused("load_in_4bit", "false", kQuantized),
    refused("use_bnb_nested_quant", "false", kQuantized),
    refused("trust_remote_code", "false", kRemote),
    refused("use_mps_device", "false", "Apple GPUs are not supported"),
};

}  // namespace

std::span<const KeyInfo> model_key_rows() { return kRows; }

}  // namespace megatoken
