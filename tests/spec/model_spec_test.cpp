#include "spec/model_spec.h"

#include <set>

#include "spec/model_config_keys.h"
#include "spec_test_support.h"

namespace megatoken {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::load_model;
using testing::refusal;
using testing::small_config;

// The keys of published config.json files.
constexpr const char* kQwen3_06B = R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false,
  "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
  "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072, "max_position_embeddings": 40960,
  "max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
  "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
  "sliding_window": null, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
  "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})";
constexpr const char* kQwen25_7B = R"({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0,
  "bos_token_id": 151643, "eos_token_id": 151645, "hidden_act": "silu", "hidden_size": 3584,
  "initializer_range": 0.02, "intermediate_size": 18944, "max_position_embeddings": 32768, "max_window_layers": 28,
  "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
  "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings": false,
  "torch_dtype": "bfloat16", "transformers_version": "4.43.1", "use_cache": true, "use_sliding_window": false,
  "vocab_size": 152064})";
constexpr const char* kLlama31_8B = R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
  "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "hidden_act": "silu",
  "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 131072,
  "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
  "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 8.0,
  "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "transformers_version": "4.42.3", "use_cache": true, "vocab_size": 128256})";
constexpr const char* kSmolLM2_135M = R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
  "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 576,
  "initializer_range": 0.041666666666666664, "intermediate_size": 1536, "is_llama_config": true,
  "max_position_embeddings": 8192, "mlp_bias": false, "model_type": "llama", "num_attention_heads": 9,
  "num_hidden_layers": 30, "num_key_value_heads": 3, "pad_token_id": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_interleaved": false, "rope_scaling": null, "rope_theta": 100000, "tie_word_embeddings": true,
  "torch_dtype": "bfloat16", "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}},
  "transformers_version": "4.42.3", "use_cache": true, "vocab_size": 49152})";

constexpr const char* kQwen3_30B_A3B = R"({"architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false,
  "attention_dropout": 0.0, "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151645, "head_dim": 128,
  "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 6144,
  "max_position_embeddings": 40960, "max_window_layers": 48, "mlp_only_layers": [], "model_type": "qwen3_moe",
  "moe_intermediate_size": 768, "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128,
  "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4, "output_router_logits": false,
  "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001,
  "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
  "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})";
constexpr const char* kMixtral_8x7B = R"({"architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0,
  "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
  "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mixtral", "num_attention_heads": 32,
  "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8,
  "output_router_logits": false, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02,
  "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "transformers_version": "4.36.0.dev0", "use_cache": true, "vocab_size": 32000})";

TEST(ModelSpec, PublishedConfigurationsLoad) {
  const auto load = [](const char* text) { return ModelSpec::from_config_json(text, "config.json"); };
  const ModelSpec qwen3 = load(kQwen3_06B);
  EXPECT_TRUE(qwen3.qk_norm && !qwen3.qkv_bias && !qwen3.o_bias && qwen3.tie_word_embeddings);
  EXPECT_EQ(qwen3.query_size(), 2048);
  EXPECT_EQ(qwen3.kv_size(), 1024);
  EXPECT_EQ(count_parameters(qwen3), 596049920);
  EXPECT_EQ(qwen3.stored_dtype, DType::bf16);

  const ModelSpec qwen2 = load(kQwen25_7B);
  EXPECT_TRUE(!qwen2.qk_norm && qwen2.qkv_bias && !qwen2.o_bias);
  EXPECT_EQ(qwen2.head_dim, 128);
  EXPECT_EQ(count_parameters(qwen2), 7615616512);

  const ModelSpec llama = load(kLlama31_8B);
  EXPECT_EQ(llama.rope.kind, RopeKind::llama3);
  EXPECT_THAT(llama.eos_token_ids, ElementsAre(128001, 128008, 128009));
  EXPECT_EQ(count_parameters(llama), 8030261248);

  const ModelSpec a3b = load(kQwen3_30B_A3B);
  EXPECT_TRUE(a3b.qk_norm && a3b.experts.normalize);
  EXPECT_EQ(a3b.experts.count, 128);
  EXPECT_EQ(a3b.experts.per_token, 8);
  EXPECT_EQ(a3b.sparse_layers(), 48);
  EXPECT_EQ(a3b.experts.aux_loss_coef, 0);
  EXPECT_EQ(count_parameters(a3b), 30532122624);
  EXPECT_EQ(count_active_parameters(a3b), 3353032704);

  const ModelSpec mixtral = load(kMixtral_8x7B);
  EXPECT_TRUE(mixtral.experts.normalize && !mixtral.qk_norm && !mixtral.qkv_bias);
  EXPECT_EQ(mixtral.experts.intermediate_size, 14336);
  EXPECT_EQ(count_parameters(mixtral), 46702792704);

  const ModelSpec smol = load(kSmolLM2_135M);
  EXPECT_EQ(smol.head_dim, 64);
  EXPECT_EQ(smol.heads_per_kv(), 3);
  EXPECT_EQ(count_parameters(smol), 134515008);
  EXPECT_EQ(smol.pad_token_id, 2);
}

TEST(ModelSpec, DefaultsAreThoseOfTheClass) {
  const auto bare = [](const std::string& type, int heads) {
    nlohmann::json config = small_config(type, {{"num_attention_heads", heads}, {"hidden_size", 128}});
    config.erase("num_key_value_heads");
    config.erase("max_position_embeddings");
    return load_model(config);
  };
  const ModelSpec qwen3 = bare("qwen3", 64), qwen2 = bare("qwen2", 64), llama = bare("llama", 64);
  EXPECT_EQ(qwen3.head_dim, 128);
  EXPECT_EQ(qwen2.head_dim, 2);
  EXPECT_EQ(qwen3.num_kv_heads, 32);
  EXPECT_EQ(qwen2.num_kv_heads, 32);
  EXPECT_EQ(llama.num_kv_heads, 64);
  EXPECT_EQ(qwen3.max_position_embeddings, 32768);
  EXPECT_EQ(llama.max_position_embeddings, 2048);
  EXPECT_THAT(llama.eos_token_ids, ElementsAre(2));
  EXPECT_THAT(qwen3.eos_token_ids, IsEmpty());
  EXPECT_FALSE(qwen3.tie_word_embeddings);
  EXPECT_EQ(qwen3.rms_norm_eps, 1e-6);
  EXPECT_EQ(qwen3.initializer_range, 0.02);
}

TEST(ModelSpec, BiasesByFamily) {
  const ModelSpec qwen3 = load_model(small_config("qwen3", {{"attention_bias", true}}));
  EXPECT_TRUE(qwen3.qkv_bias && qwen3.o_bias);
  const ModelSpec llama = load_model(small_config("llama", {{"attention_bias", true}, {"mlp_bias", true}}));
  EXPECT_TRUE(llama.qkv_bias && llama.o_bias && llama.mlp_bias);
  const ModelSpec qwen2 = load_model(small_config("qwen2", {{"attention_bias", false}}));
  EXPECT_TRUE(qwen2.qkv_bias && !qwen2.o_bias);
}

struct Refused {
  const char* model_type;
  nlohmann::json keys;
  const char* message;
};
TEST(ModelSpec, WhatIsNotHonouredIsRefusedByName) {
  const Refused cases[] = {
      {"gemma3_text", {}, "model_type: \"gemma3_text\" is not supported (supported: qwen3, qwen2, llama, qwen3_moe, qwen2_moe, mixtral)"},
      {"qwen3",
       {{"use_sliding_window", true}, {"sliding_window", 128}, {"max_window_layers", 1}},
       "use_sliding_window: true is not supported (sliding_window 128, from layer 1 on)"},
      {"qwen2",
       {{"use_sliding_window", true}, {"max_window_layers", 0}},
       "use_sliding_window: true is not supported (sliding_window 4096, from layer 0 on)"},
      {"llama", {{"sliding_window", 4096}}, "sliding_window: 4096"},
      {"llama", {{"use_sliding_window", true}}, "use_sliding_window: true"},
      {"qwen3", {{"layer_types", {"full_attention", "sliding_attention"}}}, "layer_types: \"sliding_attention\""},
      {"qwen3", {{"layer_types", {"linear_attention", "full_attention"}}}, "layer_types: \"linear_attention\""},
      {"qwen3", {{"layer_types", {"full_attention"}}}, "layer_types has 1 entries for num_hidden_layers 2"},
      {"llama", {{"attention_chunk_size", 8192}}, "attention_chunk_size: 8192"},
      {"qwen3", {{"hidden_act", "gelu"}}, "hidden_act: \"gelu\" is refused: only silu"},
      {"qwen3", {{"hidden_act", nullptr}}, "hidden_act: null"},
      {"qwen3", {{"quantization_config", {{"bits", 4}}}}, "quantization_config: {\"bits\":4}"},
      {"qwen3", {{"attention_dropout", 0.1}}, "attention_dropout: 0.1"},
      {"llama", {{"pretraining_tp", 2}}, "pretraining_tp: 2"},
      {"llama", {{"partial_rotary_factor", 0.25}}, "partial_rotary_factor: 0.25"},
      {"llama", {{"rope_interleaved", true}}, "rope_interleaved: true"},
      {"llama", {{"scale_attn_weights", false}}, "scale_attn_weights: false"},
      {"llama", {{"final_logit_softcapping", 30.0}}, "final_logit_softcapping: 30.0"},
      {"llama", {{"embedding_multiplier", 12.0}}, "embedding_multiplier: 12.0"},
      {"llama", {{"residual_multiplier", 0.22}}, "residual_multiplier: 0.22"},
      {"llama", {{"num_local_experts", 8}}, "num_local_experts: 8"},
      {"qwen3", {{"num_experts", 8}}, "num_experts: 8 is refused: a qwen3 model has no such key"},
      {"qwen3", {{"norm_topk_prob", true}}, "norm_topk_prob: true"},
      {"mixtral", {{"moe_intermediate_size", 8}}, "moe_intermediate_size: 8"},
      {"mixtral", {{"norm_topk_prob", true}}, "norm_topk_prob: true"},
      {"mixtral", {{"attention_bias", true}}, "attention_bias: true"},
      {"mixtral", {{"sliding_window", 4096}}, "sliding_window: 4096 is not supported"},
      {"mixtral", {{"router_jitter_noise", 0.1}}, "router_jitter_noise: 0.1 is refused: noise"},
      {"qwen3_moe", {{"use_sliding_window", true}, {"max_window_layers", 2}}, "use_sliding_window: true"},
      {"qwen3_moe", {{"shared_expert_intermediate_size", 8}}, "shared_expert_intermediate_size: 8"},
      {"qwen3_moe", {{"n_routed_experts", 8}}, "n_routed_experts: 8"},
      {"qwen2_moe", {{"num_local_experts", 8}}, "num_local_experts: 8"},
      {"qwen2_moe", {{"routed_scaling_factor", 2.5}}, "routed_scaling_factor: 2.5"},
      {"qwen2", {{"dual_chunk_attention_config", {{"chunk_size", 262144}}}}, "dual_chunk_attention_config"},
      {"qwen3", {{"auto_map", {{"AutoModel", "x.Y"}}}}, "auto_map"},
      {"qwen3", {{"mlp_bias", true}}, "mlp_bias: true is refused: a qwen3 model has no such key"},
      {"llama", {{"a_new_trick", 0.5}}, "a_new_trick: 0.5 is refused: an unknown key"},
      {"llama", {{"a_new_trick", "on"}}, "a_new_trick: \"on\""},
  };
  for (const Refused& item : cases)
    EXPECT_THAT(refusal(small_config(item.model_type, item.keys)),
                HasSubstr(std::string("config.json: ") + item.message));
}

TEST(ModelSpec, ValuesThatSayNothingAreFine) {
  for (const nlohmann::json& nothing :
       {nlohmann::json(nullptr), nlohmann::json(false), nlohmann::json(0), nlohmann::json(0.0), nlohmann::json(""),
        nlohmann::json::array(), nlohmann::json::object()})
    EXPECT_EQ(refusal(small_config("qwen3", {{"a_new_trick", nothing}})), "") << nothing;
  EXPECT_EQ(refusal(small_config("llama", {{"residual_multiplier", 1.0}, {"partial_rotary_factor", 1}})), "");
  EXPECT_EQ(refusal(small_config("qwen3", {{"layer_types", {"full_attention", "full_attention"}}})), "");
  EXPECT_EQ(refusal(small_config("qwen3", {{"use_sliding_window", true}, {"sliding_window", nullptr}})), "");
  EXPECT_EQ(refusal(small_config("qwen3", {{"use_sliding_window", true}, {"max_window_layers", 2}})), "");
  EXPECT_EQ(refusal(small_config("qwen3", {{"_attn_implementation_autoset", true}})), "");
}

TEST(ModelSpec, ShapesAreChecked) {
  const Refused cases[] = {
      {"llama", {{"hidden_size", 0}}, "hidden_size must be positive, not 0"},
      {"llama", {{"hidden_size", -64}}, "hidden_size must be positive"},
      {"llama", {{"hidden_size", 64.5}}, "hidden_size must be a whole number"},
      {"llama", {{"hidden_size", "64"}}, "hidden_size must be a whole number"},
      {"llama", {{"hidden_size", nullptr}}, "hidden_size is missing"},
      {"llama", {{"vocab_size", 1e18}}, "vocab_size must be a whole number"},
      {"llama", {{"vocab_size", 18446744073709551615u}}, "vocab_size: 18446744073709551615 is too large"},
      {"llama", {{"intermediate_size", int64{1} << 40}}, "intermediate_size: 1099511627776 is too large"},
      {"llama", {{"num_key_value_heads", 3}}, "num_attention_heads 4 is not a multiple of num_key_value_heads 3"},
      {"llama", {{"num_attention_heads", 3}, {"num_key_value_heads", 3}}, "hidden_size 64 is not a multiple"},
      {"qwen3", {{"head_dim", 33}}, "head_dim must be even, not 33"},
      {"qwen3", {{"rms_norm_eps", "small"}}, "rms_norm_eps must be a number"},
      {"qwen3", {{"rms_norm_eps", -1}}, "rms_norm_eps must not be negative"},
      {"qwen3", {{"tie_word_embeddings", 1}}, "tie_word_embeddings must be true or false"},
      {"qwen3", {{"eos_token_id", "</s>"}}, "eos_token_id must be a token id"},
      {"qwen3", {{"model_type", 3}}, "model_type is missing"},
      {"qwen3_moe", {{"num_experts", 4}, {"num_experts_per_tok", 5}}, "num_experts_per_tok 5 of 4 experts"},
      {"qwen3_moe", {{"num_experts", 0}}, "num_experts must be positive"},
      {"qwen3_moe", {{"num_experts", 4}, {"num_local_experts", 8}}, "num_experts 4 and num_local_experts 8 contradict"},
      {"qwen3_moe", {{"num_experts", 16384}, {"moe_intermediate_size", 4096}}, "16384 experts of 4096 are too large"},
      {"qwen3_moe", {{"mlp_only_layers", {2}}}, "mlp_only_layers: 2 is none of 2 layers"},
      {"qwen3_moe", {{"mlp_only_layers", 1}}, "mlp_only_layers must be a list"},
      {"qwen3_moe", {{"decoder_sparse_step", 0}}, "decoder_sparse_step must be positive"},
  };
  for (const Refused& item : cases)
    EXPECT_THAT(refusal(small_config(item.model_type, item.keys)), HasSubstr(item.message));
  EXPECT_EQ(load_model(small_config("qwen3", {{"eos_token_id", -1}})).eos_token_ids.size(), 0u);
}

TEST(ModelSpec, ExpertsAreDifferencesOfAFamily) {
  const ModelSpec bare = load_model(small_config("qwen3_moe"));
  EXPECT_EQ(bare.head_dim, 16);
  EXPECT_EQ(bare.experts.count, 128);
  EXPECT_EQ(bare.experts.intermediate_size, 768);
  EXPECT_FALSE(bare.experts.normalize);
  EXPECT_EQ(bare.experts.shared_intermediate_size, 0);
  EXPECT_EQ(load_model(small_config("qwen3_moe", {{"num_local_experts", 4}, {"num_experts_per_tok", 2}})).experts.count, 4);

  const ModelSpec qwen2 = load_model(small_config("qwen2_moe", {{"output_router_logits", true}}));
  EXPECT_TRUE(qwen2.qkv_bias && !qwen2.o_bias && !qwen2.qk_norm);
  EXPECT_EQ(qwen2.experts.count, 60);
  EXPECT_EQ(qwen2.experts.shared_intermediate_size, 5632);
  EXPECT_EQ(qwen2.experts.aux_loss_coef, 0.001);
  EXPECT_FALSE(load_model(small_config("qwen2_moe", {{"qkv_bias", false}})).qkv_bias);

  const ModelSpec mixtral =
      load_model(small_config("mixtral", {{"output_router_logits", true}, {"router_aux_loss_coef", 0.02}}));
  EXPECT_EQ(mixtral.experts.count, 8);
  EXPECT_EQ(mixtral.experts.per_token, 2);
  EXPECT_EQ(mixtral.experts.intermediate_size, 96);
  EXPECT_EQ(mixtral.rms_norm_eps, 1e-5);
  EXPECT_EQ(mixtral.rope.theta, 1e6);
  EXPECT_EQ(mixtral.experts.aux_loss_coef, 0.02);
  EXPECT_EQ(load_model(small_config("mixtral", {{"router_aux_loss_coef", 0.02}})).experts.aux_loss_coef, 0);
  // The default of the class is written out, for readers that assume another.
  EXPECT_EQ(nlohmann::json::parse(config_json_to_save(mixtral, DType::f32))["rope_theta"], 1000000);
}

TEST(ModelSpec, WhichLayersAreSparse) {
  const auto sparse = [](const nlohmann::json& keys) {
    const ModelSpec model = load_model(small_config("qwen3_moe", keys));
    std::string layers;
    for (int64 i = 0; i < model.num_layers; ++i) layers += model.is_sparse(i) ? 's' : 'd';
    return layers;
  };
  EXPECT_EQ(sparse({{"num_hidden_layers", 4}}), "ssss");
  EXPECT_EQ(sparse({{"num_hidden_layers", 5}, {"decoder_sparse_step", 2}}), "dsdsd");
  EXPECT_EQ(sparse({{"num_hidden_layers", 4}, {"mlp_only_layers", {0, 3}}}), "dssd");
  EXPECT_EQ(sparse({{"num_hidden_layers", 4}, {"decoder_sparse_step", 2}, {"mlp_only_layers", {1}}}), "ddds");
  EXPECT_EQ(sparse({{"num_hidden_layers", 2}, {"mlp_only_layers", nullptr}}), "ss");
}

TEST(ModelSpec, MalformedFilesAreNamed) {
  const auto parse_text = [](const std::string& text) {
    return testing::message_of(ExitCode::file, [&] { ModelSpec::from_config_json(text, "dir/config.json"); });
  };
  EXPECT_THAT(parse_text(""), HasSubstr("dir/config.json: not valid JSON"));
  EXPECT_THAT(parse_text("{\"hidden_size\": 1"), HasSubstr("not valid JSON at byte"));
  EXPECT_THAT(parse_text("[1]"), HasSubstr("must hold a JSON object"));
  EXPECT_THAT(parse_text("{\"a\": NaN}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(parse_text("{\"a\": 1e400}"), HasSubstr("a number that is too large"));
  EXPECT_THAT(parse_text("{}"), HasSubstr("model_type is missing"));
  EXPECT_THAT(parse_text(std::string(1000000, '[')), HasSubstr("not valid JSON"));
  testing::TemporaryDirectory directory;
  EXPECT_THAT(testing::message_of(ExitCode::file, [&] { ModelSpec::from_directory(directory.path()); }),
              HasSubstr("config.json: No such file"));
  directory.write("config.json", small_config("qwen3").dump());
  EXPECT_EQ(ModelSpec::from_directory(directory.path()).model_type, "qwen3");
}

TEST(ModelSpec, SavedConfigurationKeepsTheRest) {
  const ModelSpec model = ModelSpec::from_config_json(kSmolLM2_135M, "config.json");
  auto before = nlohmann::json::parse(kSmolLM2_135M);
  auto after = nlohmann::json::parse(config_json_to_save(model, DType::f32));
  EXPECT_EQ(after["torch_dtype"], "float32");
  before.erase("torch_dtype");
  after.erase("torch_dtype");
  EXPECT_EQ(before, after);
}

TEST(ModelSpec, SavedConfigurationReadsInBothMajorVersions) {
  // What transformers 5 writes is not read by 4: rope_theta inside rope_parameters. Both spellings are written.
  const ModelSpec model = load_model(small_config(
      "llama",
      {{"dtype", "bfloat16"}, {"rope_parameters", {{"rope_type", "linear"}, {"factor", 2}, {"rope_theta", 5e5}}}}));
  const auto saved = nlohmann::json::parse(config_json_to_save(model, DType::f32));
  EXPECT_EQ(saved["rope_theta"], 500000);
  EXPECT_EQ(saved["rope_scaling"], nlohmann::json({{"rope_type", "linear"}, {"factor", 2}}));
  EXPECT_EQ(saved["rope_parameters"], nlohmann::json({{"rope_type", "linear"}, {"factor", 2}, {"rope_theta", 500000}}));
  EXPECT_EQ(saved["dtype"], "float32");
  EXPECT_EQ(saved["torch_dtype"], "float32");
}

TEST(ModelKeys, EveryKeyOnce) {
  std::set<std::string_view> names;
  for (const ModelKey& key : model_keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_EQ(key.use == ModelKeyUse::neutral, !key.reason.empty()) << key.name;
  }
}

}  // namespace
}  // namespace megatoken
