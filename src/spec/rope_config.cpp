// Reading and writing the rope keys of a model configuration (rope.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "spec/rope.h"

namespace megatoken {
namespace {

using Json = nlohmann::json;

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw std::invalid_argument(fmt::format(format, std::forward<Args>(args)...));
}

// A key that the rope's own kind doesn't use is ignored, as in transformers (a leftover of another kind).
constexpr std::string_view kKnownKeys[] = {
    "type",      "rope_type",      "rope_theta",       "factor",
    "beta_fast", "beta_slow",      "low_freq_factor",  "high_freq_factor",
    "mscale",    "mscale_all_dim", "attention_factor", "original_max_position_embeddings",
    "truncate",
};

double number(const Json& value, std::string_view key) {
  if (!value.is_number()) refuse("{} must be a number, not {}", key, value.dump());
  const double result = value.get<double>();
  if (!std::isfinite(result)) refuse("{} must be finite", key);
  return result;
}

// A positive number; nullopt when absent or null.
std::optional<double> optional_number(const Json& parameters, const char* key, bool zero_is_unset = false) {
  const auto found = parameters.find(key);
  if (found == parameters.end() || found->is_null()) return std::nullopt;
  const double value = number(*found, key);
  if (value == 0 && zero_is_unset) return std::nullopt;
  if (value <= 0) refuse("{} must be positive, not {}", key, found->dump());
  return value;
}

double required_number(const Json& parameters, const char* key, RopeKind kind) {
  const auto value = optional_number(parameters, key);
  if (!value) refuse("rope type {} needs {}", name_of(kind), key);
  return *value;
}

int64 positions(const Json& value, const char* key) {
  const double given = number(value, key);
  if (given < 1 || given > 1e15 || given != std::floor(given))
    refuse("{} must be a positive whole number, not {}", key, value.dump());
  return static_cast<int64>(given);
}

RopeKind kind_of(const Json& parameters) {
  const char* key = parameters.contains("rope_type") ? "rope_type" : "type";
  if (!parameters.contains(key)) return RopeKind::none;
  const Json& value = parameters.at(key);
  if (!value.is_string()) refuse("{} must be a string, not {}", key, value.dump());
  const auto name = value.get<std::string>();
  for (const RopeKind kind : {RopeKind::none, RopeKind::linear, RopeKind::dynamic, RopeKind::llama3, RopeKind::yarn})
    if (name == name_of(kind)) return kind;
  refuse("{}: {} is not supported (supported: default, linear, dynamic, llama3, yarn)", key, name);
}

void check_keys(const Json& parameters) {
  for (const auto& [key, value] : parameters.items()) {
    const bool known = std::find(std::begin(kKnownKeys), std::end(kKnownKeys), key) != std::end(kKnownKeys);
    if (known || value.is_null()) continue;
    if (key == "partial_rotary_factor" && value.is_number() && value.get<double>() == 1.0) continue;
    if (value.is_object()) refuse("a rope for {} alone is not supported: one rope for all layers only", key);
    refuse("{}: {} is not supported", key, value.dump());
  }
}

// `parameters` is one flat dictionary; theta is what holds when it has none of its own; `original` is the
// original_max_position_embeddings that stands beside the dictionary, which wins (as in transformers).
RopeSpec read(const Json& parameters, double theta, const std::optional<int64>& original, const RopeContext& context) {
  check_keys(parameters);
  RopeSpec rope;
  rope.kind = kind_of(parameters);
  rope.head_dim = context.head_dim;
  rope.max_position_embeddings = context.max_position_embeddings;
  rope.theta = parameters.contains("rope_theta") ? number(parameters.at("rope_theta"), "rope_theta") : theta;
  if (rope.theta <= 1.0) refuse("rope_theta must be greater than 1, not {}", rope.theta);
  if (rope.kind == RopeKind::none) return rope;

  if (rope.kind == RopeKind::llama3 || rope.kind == RopeKind::yarn) {
    const auto inside = parameters.find("original_max_position_embeddings");
    if (original)
      rope.original_max_position_embeddings = *original;
    else if (inside != parameters.end() && !inside->is_null())
      rope.original_max_position_embeddings = positions(*inside, "original_max_position_embeddings");
    else
      rope.original_max_position_embeddings = context.max_position_embeddings;
  }
  const auto factor = parameters.find("factor");
  if (rope.kind == RopeKind::yarn && factor != parameters.end() && factor->is_null())
    rope.factor = static_cast<double>(context.max_position_embeddings) /
                  static_cast<double>(rope.original_max_position_embeddings);
  else
    rope.factor = required_number(parameters, "factor", rope.kind);

  if (rope.kind == RopeKind::dynamic) {
    if (rope.head_dim <= 2) refuse("rope type dynamic needs a head_dim over 2, not {}", rope.head_dim);
    if (rope.factor < 1.0) refuse("factor must be at least 1 for rope type dynamic, not {}", rope.factor);
  }
  if (rope.kind == RopeKind::llama3) {
    rope.low_freq_factor = required_number(parameters, "low_freq_factor", rope.kind);
    rope.high_freq_factor = required_number(parameters, "high_freq_factor", rope.kind);
    if (rope.high_freq_factor <= rope.low_freq_factor)
      refuse("high_freq_factor {} must be greater than low_freq_factor {}", rope.high_freq_factor,
             rope.low_freq_factor);
  }
  if (rope.kind == RopeKind::yarn) {
    rope.beta_fast = optional_number(parameters, "beta_fast", true).value_or(32.0);
    rope.beta_slow = optional_number(parameters, "beta_slow", true).value_or(1.0);
    if (rope.beta_fast < rope.beta_slow)
      refuse("beta_fast {} must not be less than beta_slow {}", rope.beta_fast, rope.beta_slow);
    rope.attention_factor = optional_number(parameters, "attention_factor");
    rope.mscale = optional_number(parameters, "mscale", true);
    rope.mscale_all_dim = optional_number(parameters, "mscale_all_dim", true);
    const auto truncate = parameters.find("truncate");
    if (truncate != parameters.end()) {
      if (!truncate->is_boolean()) refuse("truncate must be true or false, not {}", truncate->dump());
      rope.truncate = truncate->get<bool>();
    }
  }
  return rope;
}

// True when the key holds something (transformers' truth: null and {} don't count).
bool holds(const Json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return false;
  if (!found->is_object()) refuse("{} must be a dictionary, not {}", key, found->dump());
  return !found->empty();
}

}  // namespace

RopeSpec rope_from_config(const Json& config, const RopeContext& context) {
  double theta = context.theta;
  if (const auto found = config.find("rope_theta"); found != config.end()) theta = number(*found, "rope_theta");
  std::optional<int64> original;
  if (const auto found = config.find("original_max_position_embeddings"); found != config.end() && !found->is_null())
    original = positions(*found, "original_max_position_embeddings");
  const char* key = holds(config, "rope_scaling")      ? "rope_scaling"
                    : holds(config, "rope_parameters") ? "rope_parameters"
                                                       : nullptr;
  if (key == nullptr) return read(Json::object(), theta, original, context);
  try {
    return read(config.at(key), theta, original, context);
  } catch (const std::invalid_argument& problem) {
    refuse("{}: {}", key, problem.what());
  }
}

RopeSpec rope_from_parameters(const Json& parameters, const RopeSpec& base, const RopeContext& context) {
  if (!parameters.is_object()) refuse("must be a dictionary, not {}", parameters.dump());
  return read(parameters, base.theta, std::nullopt, context);
}

void write_rope(const RopeSpec& rope, nlohmann::ordered_json& config) {
  // A whole number stays one in the file ("factor": 32.0 and 32 are the same to readers; people expect the second).
  const auto plain = [](double value) -> nlohmann::ordered_json {
    if (value == std::floor(value) && std::abs(value) < 1e15) return static_cast<int64>(value);
    return value;
  };
  nlohmann::ordered_json scaling;
  scaling["rope_type"] = std::string(name_of(rope.kind));
  if (rope.kind != RopeKind::none) scaling["factor"] = rope.factor;
  if (rope.original_max_position_embeddings > 0)
    scaling["original_max_position_embeddings"] = rope.original_max_position_embeddings;
  if (rope.kind == RopeKind::llama3) {
    scaling["low_freq_factor"] = rope.low_freq_factor;
    scaling["high_freq_factor"] = rope.high_freq_factor;
  }
  if (rope.kind == RopeKind::yarn) {
    scaling["beta_fast"] = rope.beta_fast;
    scaling["beta_slow"] = rope.beta_slow;
    if (rope.attention_factor) scaling["attention_factor"] = *rope.attention_factor;
    if (rope.mscale) scaling["mscale"] = *rope.mscale;
    if (rope.mscale_all_dim) scaling["mscale_all_dim"] = *rope.mscale_all_dim;
    if (!rope.truncate) scaling["truncate"] = false;
  }
  config["rope_theta"] = plain(rope.theta);
  config["rope_scaling"] = rope.kind == RopeKind::none ? nlohmann::ordered_json(nullptr) : scaling;
  scaling["rope_theta"] = plain(rope.theta);
  config["rope_parameters"] = scaling;
  config.erase("original_max_position_embeddings");  // it would win over the one inside
}

}  // namespace megatoken
