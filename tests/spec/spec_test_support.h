// What the tests of src/spec share.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "spec/model_spec.h"
#include "spec/run_config.h"

namespace megatoken::testing {

inline nlohmann::json read_json(const std::string& name) {
  std::ifstream file(std::string(MEGATOKEN_TEST_DATA) + "/spec/" + name);
  return nlohmann::json::parse(file);
}

// The smallest config.json of a family that loads, with `keys` put in (null removes a key).
inline nlohmann::json small_config(const std::string& model_type,
                                   const nlohmann::json& keys = nlohmann::json::object()) {
  nlohmann::json config = {{"model_type", model_type}, {"vocab_size", 100},
                           {"hidden_size", 64},        {"intermediate_size", 96},
                           {"num_hidden_layers", 2},   {"num_attention_heads", 4},
                           {"num_key_value_heads", 2}, {"max_position_embeddings", 512}};
  if (!keys.is_null()) config.update(keys);
  return config;
}

inline ModelSpec load_model(const nlohmann::json& config) {
  return ModelSpec::from_config_json(config.dump(), "config.json");
}

// The message of the Error that f throws; "" when it throws none. Checks its exit status.
template <typename F>
std::string message_of(ExitCode code, F f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "";
}

inline std::string refusal(const nlohmann::json& config) {
  return message_of(ExitCode::file, [&] { load_model(config); });
}

inline RunConfig parse(const std::string& yaml, const std::vector<KeyOverride>& overrides = {}) {
  return parse_run_config(yaml, "run.yaml", overrides);
}
inline std::string config_error(const std::string& yaml, const std::vector<KeyOverride>& overrides = {}) {
  return message_of(ExitCode::config, [&] { parse(yaml, overrides); });
}

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    path_ = std::filesystem::temp_directory_path() / "megatoken_spec_XXXXXX";
    std::string name = path_.string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = path_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace megatoken::testing
