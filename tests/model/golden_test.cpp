// Losses, counts and every gradient against transformers (tests/golden/README.md), in float32 and bfloat16.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "model/run_model.h"

namespace megatoken {
namespace {

using test::Documents;
using test::Outcome;

struct Golden {
  std::string dir;
  nlohmann::json expected;
  ModelSpec spec;
  Documents documents;

  explicit Golden(const std::string& name) : dir(std::string(MEGATOKEN_TEST_DATA) + "/golden/" + name) {
    expected = nlohmann::json::parse(std::ifstream(dir + "/expected.json"));
    spec = ModelSpec::from_directory(dir);
    for (const auto& d : expected["documents"])
      documents.add(d["input_ids"].get<std::vector<std::int32_t>>(), d["labels"].get<std::vector<std::int32_t>>());
  }
  double value(const char* key) const { return expected[key].get<double>(); }
};

class GoldenModel : public testing::TestWithParam<std::string> {};

TEST_P(GoldenModel, EqualsTransformersInFloat32) {
  const Golden golden(GetParam());
  const Outcome outcome = test::run_model(golden.spec, golden.dir, test::plain_policy(golden.spec), {golden.documents});
  EXPECT_EQ(outcome.targets, golden.expected["target_tokens"].get<int64>());
  const auto targets = static_cast<double>(outcome.targets);
  EXPECT_NEAR(outcome.loss_sum / golden.value("loss_sum"), 1, 1e-5);
  EXPECT_DOUBLE_EQ(outcome.correct / targets, golden.value("mean_token_accuracy"));
  EXPECT_NEAR(outcome.entropy_sum / targets / golden.value("entropy"), 1, 1e-5);
  EXPECT_NEAR(test::gradient_norm(outcome) / golden.value("grad_norm"), 1, 1e-5);
  const auto reader = SafetensorsFile::open(golden.dir + "/expected.safetensors");
  int compared = 0;
  for (const TensorInfo& tensor : reader.tensors()) {
    if (!tensor.name.starts_with("grad.")) continue;
    std::vector<float> want(static_cast<std::size_t>(tensor.elements));
    reader.read(tensor, 0, tensor.elements, DType::f32, want.data());
    ASSERT_TRUE(outcome.gradients.contains(tensor.name.substr(5))) << tensor.name;
    EXPECT_LT(test::relative_difference(outcome.gradients.at(tensor.name.substr(5)), want, 1 / targets), 1e-5) << tensor.name;
    ++compared;
  }
  EXPECT_EQ(compared, static_cast<int>(outcome.gradients.size()));
}

TEST_P(GoldenModel, Bfloat16GradientsAreAsCloseAsTransformers) {
  const Golden golden(GetParam());
  const Outcome outcome = test::run_model(golden.spec, golden.dir, test::plain_policy(golden.spec), {golden.documents},
                                          {.dtype = DType::bf16});
  const auto targets = static_cast<double>(outcome.targets);
  EXPECT_NEAR(outcome.loss_sum / golden.value("loss_sum"), 1, 5e-3);
  const auto reader = SafetensorsFile::open(golden.dir + "/expected.safetensors");
  double difference = 0, norm = 0;
  for (const TensorInfo& tensor : reader.tensors()) {
    if (!tensor.name.starts_with("grad.")) continue;
    std::vector<float> want(static_cast<std::size_t>(tensor.elements));
    reader.read(tensor, 0, tensor.elements, DType::f32, want.data());
    const auto& got = outcome.gradients.at(tensor.name.substr(5));
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double d = got[i] / targets - want[i];
      difference += d * d;
      norm += static_cast<double>(want[i]) * want[i];
    }
  }
  EXPECT_LT(std::sqrt(difference / norm), 1.2 * golden.expected["bf16"]["model"]["all"].get<double>());
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenModel,
                         testing::Values("qwen3_tied", "qwen3_untied", "qwen3_bias_linear", "qwen2_untied", "llama3",
                                         "llama_bf16_shards", "qwen3_yarn32", "llama_dynamic"));

}  // namespace
}  // namespace megatoken
