#include "spec/model_config_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace megatoken {
namespace {

using enum ModelKeyUse;

constexpr std::string_view kBlocked = "attention over a window or chunk is not supported";
constexpr std::string_view kScaled = "scaled weights, residuals or logits are not supported";
constexpr std::string_view kDropout = "dropout is not supported";
constexpr std::string_view kQuantized = "quantised weights can't be trained";

constexpr ModelKey kKeys[] = {
    {"model_type", honoured},
    {"vocab_size", honoured},
    {"hidden_size", honoured},
    {"intermediate_size", honoured},
    {"num_hidden_layers", honoured},
    {"num_attention_heads", honoured},
    {"num_key_value_heads", honoured},
    {"head_dim", honoured},
    {"rms_norm_eps", honoured},
    {"tie_word_embeddings", honoured},
    {"attention_bias", honoured},
    {"mlp_bias", honoured},
    {"max_position_embeddings", honoured},
    {"initializer_range", honoured},
    {"rope_theta", honoured},
    {"rope_scaling", honoured},
    {"rope_parameters", honoured},
    {"original_max_position_embeddings", honoured},
    {"bos_token_id", honoured},
    {"eos_token_id", honoured},
    {"pad_token_id", honoured},
    {"dtype", honoured},
    {"torch_dtype", honoured},
    {"layer_types", honoured},
    {"use_sliding_window", honoured},
    {"sliding_window", honoured},
    {"max_window_layers", honoured},
    {"qkv_bias", honoured},
    {"num_experts", honoured},
    {"num_local_experts", honoured},
    {"num_experts_per_tok", honoured},
    {"moe_intermediate_size", honoured},
    {"shared_expert_intermediate_size", honoured},
    {"norm_topk_prob", honoured},
    {"decoder_sparse_step", honoured},
    {"mlp_only_layers", honoured},
    {"router_aux_loss_coef", honoured},
    {"output_router_logits", honoured},

    {"hidden_act", neutral, R"("silu"|"swish")", "only silu is supported"},
    {"attention_dropout", neutral, "0", kDropout},
    {"attn_dropout", neutral, "0", kDropout},
    {"attn_pdrop", neutral, "0", kDropout},
    {"embd_pdrop", neutral, "0", kDropout},
    {"resid_pdrop", neutral, "0", kDropout},
    {"hidden_dropout", neutral, "0", kDropout},
    {"pretraining_tp", neutral, "1|0", "products in slices give other numbers"},
    {"partial_rotary_factor", neutral, "1", "a rope over part of the head is not supported"},
    {"rotary_pct", neutral, "1", "a rope over part of the head is not supported"},
    {"rope_interleaved", neutral, "false", "a rope over interleaved pairs is not supported"},
    {"attention_chunk_size", neutral, "", kBlocked},
    {"dual_chunk_attention_config", neutral, "", kBlocked},
    {"attention_sink", neutral, "", "attention sinks are not supported"},
    {"no_rope_layers", neutral, "", "layers without rope are not supported"},
    {"no_rope_layer_interval", neutral, "", "layers without rope are not supported"},
    {"attn_logit_softcapping", neutral, "", kScaled},
    {"final_logit_softcapping", neutral, "", kScaled},
    {"logits_scaling", neutral, "1", kScaled},
    {"logit_scale", neutral, "1", kScaled},
    {"embedding_multiplier", neutral, "1", kScaled},
    {"residual_multiplier", neutral, "1", kScaled},
    {"attention_multiplier", neutral, "", kScaled},
    {"query_pre_attn_scalar", neutral, "", kScaled},
    {"scale_attn_weights", neutral, "true", kScaled},
    {"scale_attn_by_inverse_layer_idx", neutral, "false", kScaled},
    {"scale_emb", neutral, "1", kScaled},
    {"scale_depth", neutral, "", kScaled},
    {"use_qk_norm", neutral, "false", "only qwen3 and qwen3_moe have normalised queries and keys"},
    {"qk_layernorm", neutral, "false", "only qwen3 and qwen3_moe have normalised queries and keys"},
    {"router_jitter_noise", neutral, "0", "noise on the router's input is not supported"},
    {"num_nextn_predict_layers", neutral, "0", "extra prediction layers are not supported"},
    {"quantization_config", neutral, "", kQuantized},
    {"compression_config", neutral, "", kQuantized},
    {"per_layer_config", neutral, "", "layers of different kinds are not supported"},
    {"is_encoder_decoder", neutral, "false", "only decoders are supported"},
    {"add_cross_attention", neutral, "false", "only decoders are supported"},
    {"chunk_size_feed_forward", neutral, "0", "the MLP is tiled by token_tile"},
    {"pruned_heads", neutral, "", "pruned heads are not supported"},
    {"auto_map", neutral, "",
     "the model brings its own code, which is not run; remove the key if model_type alone describes it"},

    {"architectures", harmless},
    {"attn_implementation", harmless},
    {"bad_words_ids", harmless},
    {"begin_suppress_tokens", harmless},
    {"cls_token_id", harmless},
    {"cross_attention_hidden_size", harmless},
    {"decoder_start_token_id", harmless},
    {"diversity_penalty", harmless},
    {"do_sample", harmless},
    {"early_stopping", harmless},
    {"encoder_no_repeat_ngram_size", harmless},
    {"exponential_decay_length_penalty", harmless},
    {"finetuning_task", harmless},
    {"forced_bos_token_id", harmless},
    {"forced_eos_token_id", harmless},
    {"id2label", harmless},
    {"is_decoder", harmless},
    {"is_llama_config", harmless},
    {"label2id", harmless},
    {"length_penalty", harmless},
    {"max_length", harmless},
    {"max_new_tokens", harmless},
    {"max_sequence_length", harmless},
    {"min_length", harmless},
    {"model_max_length", harmless},
    {"name_or_path", harmless},
    {"no_repeat_ngram_size", harmless},
    {"num_beam_groups", harmless},
    {"num_beams", harmless},
    {"num_labels", harmless},
    {"num_return_sequences", harmless},
    {"output_attentions", harmless},
    {"output_hidden_states", harmless},
    {"output_scores", harmless},
    {"prefix", harmless},
    {"problem_type", harmless},
    {"remove_invalid_values", harmless},
    {"repetition_penalty", harmless},
    {"return_dict", harmless},
    {"return_dict_in_generate", harmless},
    {"sep_token_id", harmless},
    {"suppress_tokens", harmless},
    {"task_specific_params", harmless},
    {"temperature", harmless},
    {"tf_legacy_loss", harmless},
    {"tie_encoder_decoder", harmless},
    {"tie_last_hidden_states", harmless},
    {"tokenizer_class", harmless},
    {"top_k", harmless},
    {"top_p", harmless},
    {"torchscript", harmless},
    {"transformers.js_config", harmless},
    {"transformers_version", harmless},
    {"typical_p", harmless},
    {"unk_token_id", harmless},
    {"unsloth_fixed", harmless},
    {"unsloth_version", harmless},
    {"use_bfloat16", harmless},
    {"use_cache", harmless},
};

bool says_nothing(const nlohmann::json& value) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value.get<double>() == 0;
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.empty();
}

bool is_neutral(const nlohmann::json& value, std::string_view list) {
  while (!list.empty()) {
    const auto bar = list.find('|');
    if (value == nlohmann::json::parse(list.substr(0, bar))) return true;
    list = bar == std::string_view::npos ? std::string_view{} : list.substr(bar + 1);
  }
  return false;
}

// Honoured keys that only some families read: a value elsewhere would be silently without effect.
struct FamilyKeys {
  std::string_view key;
  std::initializer_list<std::string_view> model_types;
};
const FamilyKeys kFamilyKeys[] = {
    {"use_sliding_window", {"qwen3", "qwen2", "qwen3_moe", "qwen2_moe"}},
    {"sliding_window", {"qwen3", "qwen2", "qwen3_moe", "qwen2_moe", "mixtral"}},
    {"max_window_layers", {"qwen3", "qwen2", "qwen3_moe", "qwen2_moe"}},
    {"mlp_bias", {"llama"}},
    {"attention_bias", {"qwen3", "qwen2", "llama", "qwen3_moe"}},
    {"qkv_bias", {"qwen2_moe"}},
    {"num_experts", {"qwen3_moe", "qwen2_moe", "mixtral"}},
    {"num_local_experts", {"qwen3_moe", "mixtral"}},
    {"num_experts_per_tok", {"qwen3_moe", "qwen2_moe", "mixtral"}},
    {"moe_intermediate_size", {"qwen3_moe", "qwen2_moe"}},
    {"shared_expert_intermediate_size", {"qwen2_moe"}},
    {"norm_topk_prob", {"qwen3_moe", "qwen2_moe"}},
    {"decoder_sparse_step", {"qwen3_moe", "qwen2_moe"}},
    {"mlp_only_layers", {"qwen3_moe", "qwen2_moe"}},
    {"router_aux_loss_coef", {"qwen3_moe", "qwen2_moe", "mixtral"}},
    {"output_router_logits", {"qwen3_moe", "qwen2_moe", "mixtral"}},
};

bool read_by(std::string_view model_type, std::string_view key) {
  for (const FamilyKeys& row : kFamilyKeys)
    if (row.key == key) return std::find(row.model_types.begin(), row.model_types.end(), model_type) != row.model_types.end();
  return true;
}

std::string shown(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

}  // namespace

std::span<const ModelKey> model_keys() { return kKeys; }

void check_model_keys(const nlohmann::json& config, std::string_view model_type) {
  for (const auto& [key, value] : config.items()) {
    if (key.starts_with('_')) continue;  // transformers' private attributes
    const auto* known =
        std::find_if(std::begin(kKeys), std::end(kKeys), [&](const ModelKey& k) { return k.name == key; });
    const bool listed = known != std::end(kKeys);
    if (listed && known->use == harmless) continue;
    if (listed && known->use == honoured && read_by(model_type, key)) continue;
    if (listed && known->use == neutral && key != "hidden_act" && value.is_null()) continue;
    if (listed && known->use == neutral) {
      if (is_neutral(value, known->neutral) || (known->neutral.empty() && says_nothing(value))) continue;
      throw std::invalid_argument(fmt::format("{}: {} is refused: {}", key, shown(value), known->reason));
    }
    if (says_nothing(value)) continue;
    throw std::invalid_argument(
        listed ? fmt::format("{}: {} is refused: a {} model has no such key", key, shown(value), model_type)
               : fmt::format("{}: {} is refused: an unknown key could change the model; remove it "
                             "if it is only a note",
                             key, shown(value)));
  }
}

}  // namespace megatoken
