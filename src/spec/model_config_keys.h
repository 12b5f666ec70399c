// What becomes of each key of a config.json. A key that could change numbers and isn't honoured is refused, and so is a
// key that nobody here has heard of, unless its value says "nothing": null, false, 0, "", [] or {}.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

namespace megatoken {

enum class ModelKeyUse {
  honoured,  // read by ModelSpec or RopeSpec
  harmless,  // no effect on training: metadata, generation settings, runtime switches
  neutral,   // fine at the value given in `neutral`; refused at any other
};

struct ModelKey {
  std::string_view name;
  ModelKeyUse use;
  std::string_view neutral = {};  // JSON values, separated by '|'
  std::string_view reason = {};   // why it is refused otherwise
};

std::span<const ModelKey> model_keys();

// Throws std::invalid_argument naming the first key of `config` that is refused, its value and why. `model_type`
// decides which of the keys below are read at all.
void check_model_keys(const nlohmann::json& config, std::string_view model_type);

}  // namespace megatoken
