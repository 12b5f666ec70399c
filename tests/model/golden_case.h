// A case of tests/golden: its checkpoint, its documents and what transformers computed.
#pragma once

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "io/safetensors.h"
#include "model/run_model.h"

namespace megatoken::test {

inline const std::string kGoldenCases[] = {"qwen3_tied", "qwen3_untied",      "qwen3_bias_linear", "qwen2_untied",
                                           "llama3",     "llama_bf16_shards", "qwen3_yarn32",      "llama_dynamic",
                                           "qwen3_moe",  "qwen3_moe_fused",   "mixtral",           "mixtral_fused",
                                           "qwen2_moe"};

struct Golden {
  std::string dir;
  nlohmann::json expected;
  ModelSpec spec;
  Documents documents;

  explicit Golden(const std::string& name) : dir(std::string(MEGATOKEN_TEST_DATA) + "/golden/" + name) {
    expected = nlohmann::json::parse(std::ifstream(dir + "/expected.json"));
    spec = ModelSpec::from_directory(dir);
    spec.expert_layout = expert_layout_of(spec, CheckpointReader::open(dir));
    spec.experts.aux_loss_coef = 0;
    for (const auto& d : expected["documents"])
      documents.add(d["input_ids"].get<std::vector<std::int32_t>>(), d["labels"].get<std::vector<std::int32_t>>());
  }
  double value(const char* key) const { return expected[key].get<double>(); }
};

// ||g - r|| / ||r|| of all gradients as one vector: g of the mean loss, r transformers' in float32.
inline double gradient_error(const Golden& golden, const Outcome& outcome) {
  const auto reader = SafetensorsFile::open(golden.dir + "/expected.safetensors");
  double difference = 0, norm = 0;
  for (const TensorInfo& tensor : reader.tensors()) {
    if (!tensor.name.starts_with("grad.")) continue;
    std::vector<float> want(static_cast<std::size_t>(tensor.elements));
    reader.read(tensor, 0, tensor.elements, DType::f32, want.data());
    const auto& got = outcome.gradients.at(tensor.name.substr(5));
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double d = got[i] / static_cast<double>(outcome.targets) - want[i];
      difference += d * d;
      norm += static_cast<double>(want[i]) * want[i];
    }
  }
  return std::sqrt(difference / norm);
}

}  // namespace megatoken::test
