// Keys of the optimisation (TrainingArguments and the training part of SFTConfig).
#include "spec/lr_schedule_keys.h"
#include "spec/run_config.h"
#include "spec/run_config_keys.h"

namespace megatoken {
namespace {

using enum ValueType;

constexpr int64 kMostSteps = int64{1} << 40;

// A number of steps, or a fraction of all when under 1.
double steps_or_fraction(const KeyValue& value, double smallest) {
  const double steps = value.number(smallest, static_cast<double>(kMostSteps));
  if (steps >= 1 && steps != static_cast<double>(static_cast<int64>(steps)))
    value.expected("a whole number of steps, or a fraction under 1");
  return steps;
}

void set_optim(RunConfig&, const KeyValue& value) {
  const std::string name = value.text();
  for (const std::string_view adamw : {"adamw_torch", "adamw_torch_fused", "adamw_torch_xla", "adamw_torch_npu_fused",
                                       "adamw_hf", "adamw_apex_fused", "adamw", "paged_adamw", "paged_adamw_32bit"})
    if (name == adamw) return;
  value.fail("{} is refused: the optimizer is AdamW in float32 (adamw_torch)", name);
}

void set_gradient_checkpointing(RunConfig& config, const KeyValue& value) {
  if (!value.is_null() && !value.flag())
    config.notices.push_back(
        "accepted, no effect: gradient_checkpointing false (a layer always keeps its input and attention output "
        "alone)");
}

void set_offload(RunConfig& config, const KeyValue& value) {
  if (value.flag()) offload_activations(config);
}

void set_scheduler_arguments(RunConfig& config, const KeyValue& value) {
  config.training.lr_scheduler_kwargs.clear();
  for (const auto& [name, argument] : value.json().items()) {
    if (argument.is_null()) continue;
    if (argument.is_number())
      config.training.lr_scheduler_kwargs[name] = argument.get<double>();
    else if (argument.is_string())
      config.training.lr_scheduler_kwargs[name] = argument.get<std::string>();
    else
      value.fail("{} must be a number or a word, not {}", name, argument.dump());
  }
}

constexpr std::string_view kTensorCores = "products are exact float32 or bfloat16 with float32 sums";
constexpr std::string_view kCompiled = "kernels are compiled ahead of time";
constexpr std::string_view kRecompute = "layers are recomputed by hand-written code";
constexpr std::string_view kHalf = "float16 is not supported: training runs in bfloat16 or float32";

const KeyInfo kRows[] = {
    honoured("num_train_epochs", number, "3.0", "passes over the data",
             [](RunConfig& c, const KeyValue& v) { c.training.num_train_epochs = v.number(1e-9, 1e9); }),
    honoured("max_steps", integer, "-1", "optimizer steps; when positive it overrides num_train_epochs",
             [](RunConfig& c, const KeyValue& v) {
               c.training.max_steps = v.integer(-1, kMostSteps);
               if (c.training.max_steps == 0) v.expected("positive, or -1");
             }),
    honoured("per_device_train_batch_size", integer, "8", "rows of a micro-batch of one data-parallel rank",
             [](RunConfig& c, const KeyValue& v) { c.training.per_device_train_batch_size = v.integer(1, 1 << 24); }),
    honoured("per_device_eval_batch_size", integer, "8", "the same in evaluation",
             [](RunConfig& c, const KeyValue& v) { c.training.per_device_eval_batch_size = v.integer(1, 1 << 24); }),
    honoured("gradient_accumulation_steps", integer, "1", "micro-batches in an optimizer step",
             [](RunConfig& c, const KeyValue& v) { c.training.gradient_accumulation_steps = v.integer(1, 1 << 24); }),
    honoured("learning_rate", number, "2e-05", "the highest learning rate",
             [](RunConfig& c, const KeyValue& v) { c.training.learning_rate = v.number(0, 1e6); }),
    honoured("lr_scheduler_type", choice, "linear", "transformers' schedules that follow the step alone",
             [](RunConfig& c, const KeyValue& v) {
               const std::string name = v.text();
               if (!find_schedule(name)) v.expected("one of " + schedule_names());
               if (!find_schedule(name)->supported) v.fail("{} is refused: it follows a metric", name);
               c.training.lr_scheduler_type = name;
             }),
    honoured("lr_scheduler_kwargs", map, "", "the schedule's own arguments, such as {num_cycles: 2}",
             set_scheduler_arguments)
        .or_null(),
    honoured("warmup_steps", number, "0", "steps of linear warm-up; a fraction of all steps when under 1",
             [](RunConfig& c, const KeyValue& v) { c.training.warmup_steps = steps_or_fraction(v, 0); }),
    honoured("warmup_ratio", number, "0", "the fraction of all steps to warm up in, when warmup_steps is 0",
             [](RunConfig& c, const KeyValue& v) { c.training.warmup_ratio = v.number(0, 1); })
        .or_null(),
    honoured("optim", choice, "adamw_torch_fused", "any name of plain AdamW", set_optim),
    honoured("weight_decay", number, "0.0", "decoupled, on matrices and embeddings (not on norms and biases)",
             [](RunConfig& c, const KeyValue& v) { c.training.weight_decay = v.number(0, 1e6); }),
    honoured("adam_beta1", number, "0.9", "",
             [](RunConfig& c, const KeyValue& v) { c.training.adam_beta1 = v.number(0, 1); }),
    honoured("adam_beta2", number, "0.999", "",
             [](RunConfig& c, const KeyValue& v) { c.training.adam_beta2 = v.number(0, 1); }),
    honoured("adam_epsilon", number, "1e-08", "",
             [](RunConfig& c, const KeyValue& v) { c.training.adam_epsilon = v.number(0, 1); }),
    honoured("max_grad_norm", number, "1.0", "gradients are scaled down to this norm; 0 or null: never",
             [](RunConfig& c, const KeyValue& v) { c.training.max_grad_norm = v.is_null() ? 0 : v.number(0, 1e30); })
        .or_null(),
    honoured("bf16", flag, "", "compute in bfloat16; always so on CUDA, where false is refused",
             [](RunConfig& c, const KeyValue& v) {
               if (!v.is_null()) c.training.bf16 = v.flag();
             })
        .or_null(),
    honoured("mixed_precision", choice, "no", "bf16: the same as bf16: true",
             [](RunConfig& c, const KeyValue& v) {
               if (v.json() == "fp16") v.fail("fp16 is refused: {}", kHalf);
               if (v.json() == "fp8") v.fail("fp8 is refused: training runs in bfloat16 or float32");
               c.training.mixed_precision_bf16 = v.choice<bool>({{"no", false}, {"bf16", true}});
             }),
    honoured("loss_type", choice, "nll", "nll, or chunked_nll (the same: the loss is always computed by tiles)",
             [](RunConfig&, const KeyValue& v) {
               if (v.json() == "dft") v.fail("dft is refused: only the negative log-likelihood is supported");
               v.choice<bool>({{"nll", true}, {"chunked_nll", true}});
             }),
    honoured("gradient_checkpointing", flag, "true",
             "layers keep their input and attention output for backward and recompute the rest; always so",
             set_gradient_checkpointing)
        .also("activation_checkpointing")
        .or_null(),
    container_row("gradient_checkpointing_kwargs", "options of gradient checkpointing")
        .also("activation_checkpointing_kwargs"),
    honoured("gradient_checkpointing_kwargs.offload", flag, "false", "as activation_offloading", set_offload),
    accepted("gradient_checkpointing_kwargs.use_reentrant", kRecompute),
    accepted("gradient_checkpointing_kwargs.preserve_rng_state", kRecompute),
    accepted("gradient_checkpointing_kwargs.determinism_check", kRecompute),
    accepted("gradient_checkpointing_kwargs.early_stop", kRecompute),
    accepted("gradient_checkpointing_kwargs.every_n_layers", kRecompute),
    honoured("activation_offloading", flag, "false",
             "what a layer keeps for backward waits in host memory, as with layer_input and attention_output: host",
             set_offload),

    accepted("gradient_checkpointing_use_reentrant", kRecompute),
    accepted("use_liger_kernel", "the loss is tiled and the kernels are fused anyway"),
    accepted("liger_kernel_config", "the loss is tiled and the kernels are fused anyway"),
    accepted("torch_compile", kCompiled),
    accepted("torch_compile_backend", kCompiled),
    accepted("torch_compile_mode", kCompiled),
    accepted("torchdynamo", kCompiled),
    accepted("jit_mode_eval", kCompiled),
    accepted("tf32", kTensorCores),
    accepted("torch_empty_cache_steps", "memory is planned once; there is no cache"),
    accepted("bf16_full_eval", "evaluation runs in the dtype of training"),
    accepted("fp16_opt_level", "it only applies with fp16"),
    accepted("fp16_backend", "it only applies with fp16"),
    accepted("half_precision_backend", "it only applies with fp16"),
    accepted("full_determinism", "one plan, one order of sums"),
    accepted("logging_nan_inf_filter", "a loss that is not finite stops the run"),
    accepted("use_legacy_prediction_loop", "there is one evaluation loop"),
    accepted("prediction_loss_only", "evaluation yields losses and accuracies, not logits"),
    accepted("eval_do_concat_batches", "evaluation yields losses and accuracies, not logits"),
    accepted("eval_use_gather_object", "evaluation yields losses and accuracies, not logits"),
    accepted("eval_accumulation_steps", "evaluation yields losses and accuracies, not logits"),
    accepted("include_for_metrics", "evaluation yields losses and accuracies, not logits"),
    accepted("include_inputs_for_metrics", "evaluation yields losses and accuracies, not logits"),
    accepted("batch_eval_metrics", "evaluation yields losses and accuracies, not logits"),
    accepted("do_train", "the command decides"),
    accepted("do_eval", "the command decides, and eval_strategy"),
    refused("do_predict", "false", "predictions are not supported"),
    refused("average_tokens_across_devices", "true", "the loss is always averaged over all ranks' targets"),
    refused("fp16", "false", kHalf),
    refused("fp16_full_eval", "false", kHalf),
    refused("label_smoothing_factor", "0", "label smoothing is not supported"),
    refused("neftune_noise_alpha", "", "noise on the embeddings is not supported"),
    refused("optim_args", R"("")", "the optimizer's arguments are adam_beta1, adam_beta2, adam_epsilon, weight_decay"),
    refused("optim_target_modules", "", "all weights are trained by one optimizer"),
    refused("adafactor", "false", "the optimizer is AdamW in float32"),
    refused("auto_find_batch_size", "false", "what doesn't fit is refused before step 1; see megatoken plan"),
    refused("past_index", "-1", "it is not supported"),
};

}  // namespace

std::span<const KeyInfo> training_key_rows() { return kRows; }

}  // namespace megatoken
