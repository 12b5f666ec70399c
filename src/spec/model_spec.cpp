#include "spec/model_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/error.h"
#include "spec/config_scalar.h"
#include "spec/model_config_keys.h"

namespace megatoken {
namespace {

using Json = nlohmann::json;

// What transformers assumes for keys that a file may lack.
struct FamilyDefaults {
  std::string_view model_type;
  int64 num_kv_heads;  // 0: as many as query heads
  int64 head_dim;      // 0: hidden_size / num_attention_heads
  int64 max_position_embeddings;
  bool qk_norm;
  bool qkv_bias_always;  // else attention_bias decides, for o_proj too
  std::optional<int64> bos, eos;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  // Mixture of experts; count 0: a dense family.
  int64 experts = 0, experts_per_token = 0;
  int64 expert_size = 0;         // moe_intermediate_size; 0: experts are intermediate_size wide
  int64 shared_expert_size = 0;  // 0: no shared expert
  bool always_normalized = false;  // else norm_topk_prob decides
};
constexpr FamilyDefaults kFamilies[] = {
    {"qwen3", 32, 128, 32768, true, false, std::nullopt, std::nullopt},
    {"qwen2", 32, 0, 32768, false, true, std::nullopt, std::nullopt},
    {"llama", 0, 0, 2048, false, false, 1, 2},
    {"qwen3_moe", 4, 0, 32768, true, false, std::nullopt, std::nullopt, 1e-6, 1e4, 128, 8, 768, 0, false},
    {"qwen2_moe", 16, 0, 32768, false, true, std::nullopt, std::nullopt, 1e-6, 1e4, 60, 4, 1408, 5632, false},
    {"mixtral", 8, 0, 131072, false, false, 1, 2, 1e-5, 1e6, 8, 2, 0, 0, true},
};
constexpr double kDefaultAuxLossCoef = 0.001;

// Bounds that keep every product of sizes (a layer's weights, all weights) inside int64.
constexpr int64 kMaxVocabulary = int64{1} << 28;
constexpr int64 kMaxHidden = int64{1} << 20;
constexpr int64 kMaxIntermediate = int64{1} << 22;
constexpr int64 kMaxExperts = int64{1} << 14;
constexpr int64 kMaxExpertsWidth = int64{1} << 24;  // experts x their intermediate size
constexpr int64 kMaxLayers = int64{1} << 14;
constexpr int64 kMaxHeads = int64{1} << 14;
constexpr int64 kMaxHeadDim = int64{1} << 12;
constexpr int64 kMaxPositions = int64{1} << 48;
constexpr std::size_t kMostMessage = 400;
constexpr std::uintmax_t kMaxConfigBytes = 16u << 20;

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw std::invalid_argument(fmt::format(format, std::forward<Args>(args)...));
}

// The value of a key; nullptr when absent or null.
const Json* find(const Json& config, const char* key) {
  const auto found = config.find(key);
  return found == config.end() || found->is_null() ? nullptr : &*found;
}

int64 size_of_key(const Json& config, const char* key, int64 largest, std::optional<int64> otherwise = std::nullopt,
                  int64 smallest = 1) {
  const Json* value = find(config, key);
  if (value == nullptr) {
    if (!otherwise) refuse("{} is missing", key);
    return *otherwise;
  }
  if (value->is_number_unsigned() && value->get<std::uint64_t>() > static_cast<std::uint64_t>(largest))
    refuse("{}: {} is too large (at most {})", key, value->dump(), largest);
  if (!value->is_number_integer()) refuse("{} must be a whole number, not {}", key, value->dump());
  const int64 result = value->get<int64>();
  if (result < smallest) refuse("{} must be {}, not {}", key, smallest > 0 ? "positive" : "at least 0", result);
  return result;
}

double positive(const Json& config, const char* key, double otherwise) {
  const Json* value = find(config, key);
  if (value == nullptr) return otherwise;
  if (!value->is_number()) refuse("{} must be a number, not {}", key, value->dump());
  const double result = value->get<double>();
  if (!std::isfinite(result) || result < 0) refuse("{} must not be negative or infinite, got {}", key, value->dump());
  return result;
}

bool flag(const Json& config, const char* key, bool otherwise) {
  const Json* value = find(config, key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse("{} must be true or false, not {}", key, value->dump());
  return value->get<bool>();
}

// Token ids: one, several or none; transformers ignores negative ones.
std::vector<int64> token_ids(const Json& config, const char* key, std::optional<int64> otherwise) {
  std::vector<int64> ids;
  if (!config.contains(key)) {
    if (otherwise) ids.push_back(*otherwise);
    return ids;
  }
  const Json& value = config.at(key);
  const auto add = [&](const Json& id) {
    if (!id.is_number_integer()) refuse("{} must be a token id, not {}", key, value.dump());
    if (id.get<int64>() >= 0) ids.push_back(id.get<int64>());
  };
  if (value.is_array())
    for (const Json& id : value) add(id);
  else if (!value.is_null())
    add(value);
  return ids;
}

std::optional<int64> token_id(const Json& config, const char* key, std::optional<int64> otherwise) {
  const std::vector<int64> ids = token_ids(config, key, otherwise);
  return ids.empty() ? std::nullopt : std::optional<int64>(ids.front());
}

std::optional<DType> stored_dtype(const Json& config) {
  const Json* value = find(config, "dtype");
  if (value == nullptr) value = find(config, "torch_dtype");
  if (value == nullptr || !value->is_string()) return std::nullopt;
  std::string name = value->get<std::string>();
  if (name.starts_with("torch.")) name.erase(0, 6);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    if (name == name_of(dtype)) return dtype;
  return std::nullopt;
}

// Every layer must attend to everything before it.
void check_layer_types(const Json& config, const ModelSpec& model) {
  if (const Json* types = find(config, "layer_types")) {
    if (!types->is_array()) refuse("layer_types must be a list, not {}", types->dump());
    for (const Json& type : *types)
      if (type != "full_attention" && type != "attention")
        refuse("layer_types: {} is not supported (only \"full_attention\")", type.dump());
    if (static_cast<int64>(types->size()) != model.num_layers)
      refuse("layer_types has {} entries for num_hidden_layers {}", types->size(), model.num_layers);
    return;
  }
  const Json* window = find(config, "sliding_window");
  if (model.model_type == "mixtral" && window != nullptr)
    refuse("sliding_window: {} is not supported: every layer would attend to a window", window->dump());
  if (model.model_type == "llama" || !flag(config, "use_sliding_window", false)) return;
  const bool given = config.contains("sliding_window");
  // Families of experts have windows from the first layer on.
  const int64 first =
      model.experts.count > 0 ? 0 : size_of_key(config, "max_window_layers", kMaxPositions, 28, 0);
  if ((given && window == nullptr) || first >= model.num_layers) return;  // no layer has a window
  refuse("use_sliding_window: true is not supported (sliding_window {}, from layer {} on)",
         window == nullptr ? "4096" : window->dump(), first);
}

const FamilyDefaults& family_of(const Json& config) {
  std::string supported;
  for (const FamilyDefaults& family : kFamilies) supported += fmt::format("{}{}", supported.empty() ? "" : ", ", family.model_type);
  const Json* value = find(config, "model_type");
  if (value == nullptr || !value->is_string()) refuse("model_type is missing (supported: {})", supported);
  for (const FamilyDefaults& family : kFamilies)
    if (*value == family.model_type) return family;
  refuse("model_type: {} is not supported (supported: {})", value->dump(), supported);
}

// num_experts and num_local_experts are one attribute of a model in transformers.
int64 expert_count(const Json& config, const FamilyDefaults& family) {
  const int64 local = size_of_key(config, "num_local_experts", kMaxExperts, family.experts);
  const int64 count = size_of_key(config, "num_experts", kMaxExperts, local);
  if (find(config, "num_experts") != nullptr && find(config, "num_local_experts") != nullptr && count != local)
    refuse("num_experts {} and num_local_experts {} contradict each other", count, local);
  return count;
}

ExpertSpec read_experts(const Json& config, const FamilyDefaults& family, const ModelSpec& model) {
  ExpertSpec experts;
  if (family.experts == 0) return experts;
  experts.count = expert_count(config, family);
  experts.per_token = size_of_key(config, "num_experts_per_tok", kMaxExperts, family.experts_per_token);
  if (experts.per_token > experts.count)
    refuse("num_experts_per_tok {} of {} experts", experts.per_token, experts.count);
  experts.intermediate_size =
      family.expert_size == 0 ? model.intermediate_size
                              : size_of_key(config, "moe_intermediate_size", kMaxIntermediate, family.expert_size);
  if (experts.count * experts.intermediate_size > kMaxExpertsWidth)
    refuse("{} experts of {} are too large (at most {} together)", experts.count, experts.intermediate_size,
           kMaxExpertsWidth);
  if (family.shared_expert_size > 0)
    experts.shared_intermediate_size =
        size_of_key(config, "shared_expert_intermediate_size", kMaxIntermediate, family.shared_expert_size);
  experts.normalize = family.always_normalized || flag(config, "norm_topk_prob", false);
  experts.sparse_step = size_of_key(config, "decoder_sparse_step", kMaxLayers, 1);
  if (const Json* layers = find(config, "mlp_only_layers")) {
    if (!layers->is_array()) refuse("mlp_only_layers must be a list, not {}", layers->dump());
    for (const Json& layer : *layers) {
      if (!layer.is_number_integer() || layer.get<int64>() < 0 || layer.get<int64>() >= model.num_layers)
        refuse("mlp_only_layers: {} is none of {} layers", layer.dump(), model.num_layers);
      experts.dense_layers.push_back(layer.get<int64>());
    }
  }
  const double coef = positive(config, "router_aux_loss_coef", kDefaultAuxLossCoef);
  if (flag(config, "output_router_logits", false)) experts.aux_loss_coef = coef;
  return experts;
}

ModelSpec read(const Json& config) {
  const FamilyDefaults& family = family_of(config);
  check_model_keys(config, family.model_type);

  ModelSpec model;
  model.model_type = family.model_type;
  model.vocab_size = size_of_key(config, "vocab_size", kMaxVocabulary);
  model.hidden_size = size_of_key(config, "hidden_size", kMaxHidden);
  model.intermediate_size = size_of_key(config, "intermediate_size", kMaxIntermediate);
  model.num_layers = size_of_key(config, "num_hidden_layers", kMaxLayers);
  model.num_heads = size_of_key(config, "num_attention_heads", kMaxHeads);

  // Absent and null differ: absent means the class's default, null as many as query heads.
  const bool kv_absent = !config.contains("num_key_value_heads") && family.num_kv_heads != 0;
  model.num_kv_heads =
      size_of_key(config, "num_key_value_heads", kMaxHeads, kv_absent ? family.num_kv_heads : model.num_heads);
  if (model.num_heads % model.num_kv_heads != 0)
    refuse("num_attention_heads {} is not a multiple of num_key_value_heads {}{}", model.num_heads, model.num_kv_heads,
           kv_absent ? " (the default, as the key is missing)" : "");

  const bool head_dim_given = find(config, "head_dim") != nullptr;
  if (!head_dim_given && family.head_dim == 0 && model.hidden_size % model.num_heads != 0)
    refuse("hidden_size {} is not a multiple of num_attention_heads {} and head_dim is missing", model.hidden_size,
           model.num_heads);
  model.head_dim = size_of_key(config, "head_dim", kMaxHeadDim,
                               family.head_dim != 0 ? family.head_dim : model.hidden_size / model.num_heads);
  if (model.head_dim % 2 != 0) refuse("head_dim must be even, not {}", model.head_dim);

  model.experts = read_experts(config, family, model);

  model.rms_norm_eps = positive(config, "rms_norm_eps", family.rms_norm_eps);
  model.tie_word_embeddings = flag(config, "tie_word_embeddings", false);
  const bool attention_bias = flag(config, "attention_bias", false);
  model.qk_norm = family.qk_norm;
  model.qkv_bias = family.qkv_bias_always ? flag(config, "qkv_bias", true) : attention_bias;
  model.o_bias = !family.qkv_bias_always && attention_bias;
  model.mlp_bias = model.model_type == "llama" && flag(config, "mlp_bias", false);
  model.max_position_embeddings =
      size_of_key(config, "max_position_embeddings", kMaxPositions, family.max_position_embeddings);
  model.initializer_range = positive(config, "initializer_range", 0.02);
  check_layer_types(config, model);
  model.rope = rope_from_config(config, {model.head_dim, model.max_position_embeddings, family.rope_theta});

  model.eos_token_ids = token_ids(config, "eos_token_id", family.eos);
  model.bos_token_id = token_id(config, "bos_token_id", family.bos);
  model.pad_token_id = token_id(config, "pad_token_id", std::nullopt);
  model.stored_dtype = stored_dtype(config);
  return model;
}

}  // namespace

ModelSpec ModelSpec::from_directory(const std::string& model_dir) {
  const std::string path = (std::filesystem::path(model_dir) / "config.json").string();
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (error) throw FileError("{}: {} (a model directory holds config.json)", path, error.message());
  if (bytes > kMaxConfigBytes) throw FileError("{}: {} bytes is no config.json", path, bytes);
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.good() && !file.eof()) throw FileError("{}: could not be read", path);
  return from_config_json(text, path);
}

ModelSpec ModelSpec::from_config_json(std::string_view text, const std::string& source) {
  Json config;
  try {
    config = Json::parse(text);
  } catch (const Json::parse_error& problem) {
    throw FileError("{}: not valid JSON at byte {}", source, problem.byte);
  } catch (const Json::out_of_range&) {
    throw FileError("{}: holds a number that is too large", source);
  }
  if (!config.is_object()) throw FileError("{}: must hold a JSON object", source);
  try {
    ModelSpec model = read(config);
    model.source = source;
    model.config_text = text;
    return model;
  } catch (const std::invalid_argument& problem) {
    throw FileError("{}: {}", source, one_line(problem.what(), kMostMessage));
  } catch (const Json::exception& problem) {
    throw FileError("{}: {}", source, one_line(problem.what(), kMostMessage));
  }
}

bool ModelSpec::is_sparse(int64 layer) const {
  return experts.count > 0 && (layer + 1) % experts.sparse_step == 0 &&
         std::find(experts.dense_layers.begin(), experts.dense_layers.end(), layer) == experts.dense_layers.end();
}

int64 ModelSpec::sparse_layers() const {
  int64 count = 0;
  for (int64 layer = 0; layer < num_layers; ++layer) count += is_sparse(layer) ? 1 : 0;
  return count;
}

namespace {

// experts: of a sparse layer, that are counted.
int64 parameters_with(const ModelSpec& m, int64 experts) {
  const int64 q = m.query_size(), kv = m.kv_size(), h = m.hidden_size, i = m.intermediate_size;
  int64 common = h * (q + 2 * kv) + q * h + 2 * h;
  if (m.qk_norm) common += 2 * m.head_dim;
  if (m.qkv_bias) common += q + 2 * kv;
  if (m.o_bias) common += h;
  const int64 dense = 3 * h * i + (m.mlp_bias ? 2 * i + h : 0);
  int64 sparse = m.experts.count * h + experts * 3 * h * m.experts.intermediate_size;
  if (m.experts.shared_intermediate_size > 0) sparse += 3 * h * m.experts.shared_intermediate_size + h;
  const int64 sparse_layers = m.sparse_layers();
  return m.num_layers * common + sparse_layers * sparse + (m.num_layers - sparse_layers) * dense + h +
         m.vocab_size * h * (m.tie_word_embeddings ? 1 : 2);
}

}  // namespace

int64 count_parameters(const ModelSpec& model) { return parameters_with(model, model.experts.count); }
int64 count_active_parameters(const ModelSpec& model) { return parameters_with(model, model.experts.per_token); }

void override_rope(ModelSpec& model, const RopeOverride& rope) {
  if (rope.empty()) return;
  if (rope.max_position_embeddings) model.max_position_embeddings = *rope.max_position_embeddings;
  const RopeContext context{model.head_dim, model.max_position_embeddings};
  if (rope.parameters_json.empty()) {
    model.rope.max_position_embeddings = context.max_position_embeddings;
  } else {
    try {
      model.rope = rope_from_parameters(Json::parse(rope.parameters_json), model.rope, context);
    } catch (const std::invalid_argument& problem) {
      throw ConfigError("{}: {}", rope.key, one_line(problem.what(), kMostMessage));
    } catch (const Json::exception& problem) {
      throw ConfigError("{}: {}", rope.key, one_line(problem.what(), kMostMessage));
    }
    // Readers that take YaRN's factor from the ratio of the two lengths must find the factor that was trained.
    if (model.rope.kind == RopeKind::yarn && !rope.max_position_embeddings) {
      const double reach =
          std::round(model.rope.factor * static_cast<double>(model.rope.original_max_position_embeddings));
      model.max_position_embeddings = static_cast<int64>(reach);
      model.rope.max_position_embeddings = model.max_position_embeddings;
    }
  }
  model.rope_overridden = true;
}

namespace {

// Whether transformers 4, which knows neither rope_parameters nor an original length beside rope_scaling, and
// transformers 5 both find `rope` in the file as it is.
bool reads_alike(const nlohmann::ordered_json& file, const RopeSpec& rope) {
  Json config = file;
  config.erase("rope_parameters");
  config.erase("original_max_position_embeddings");
  const Json* scaling = find(config, "rope_scaling");
  if (scaling != nullptr && scaling->empty()) return false;
  if (rope.kind == RopeKind::llama3 && (scaling == nullptr || !scaling->contains("original_max_position_embeddings")))
    return false;
  try {
    return rope_from_config(config, {rope.head_dim, rope.max_position_embeddings}) == rope;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

}  // namespace

std::string config_json_to_save(const ModelSpec& model, DType dtype) {
  auto config = nlohmann::ordered_json::parse(model.config_text);
  if (model.rope_overridden || !reads_alike(config, model.rope)) write_rope(model.rope, config);
  if (model.rope_overridden) config["max_position_embeddings"] = model.max_position_embeddings;
  if (config.contains("dtype")) config["dtype"] = std::string(name_of(dtype));
  config["torch_dtype"] = std::string(name_of(dtype));
  return config.dump(2) + "\n";
}

}  // namespace megatoken
