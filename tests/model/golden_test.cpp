// Losses, counts and every gradient against transformers (tests/golden/README.md), in float32 and bfloat16.
#include <gtest/gtest.h>

#include "model/golden_case.h"

namespace megatoken {
namespace {

using test::Golden;
using test::Outcome;

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
  EXPECT_NEAR(outcome.loss_sum / golden.value("loss_sum"), 1, 5e-3);
  EXPECT_LT(test::gradient_error(golden, outcome), 1.2 * golden.expected["bf16"]["model"]["all"].get<double>());
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenModel, testing::ValuesIn(test::kGoldenCases));

class GoldenExperts : public testing::TestWithParam<std::tuple<std::string, int64>> {};

// transformers' load-balancing loss of all documents as one padded batch, and the gradient of both losses' sum.
TEST_P(GoldenExperts, LoadBalancingLossEqualsTransformers) {
  const auto& [name, cp] = GetParam();
  Golden golden(name);
  golden.spec.experts.aux_loss_coef = 0.05;
  const auto targets = golden.value("target_tokens");
  Policy policy = test::plain_policy(golden.spec);
  policy.token_tile = cp == 1 ? 0 : 9;
  const Outcome outcome = test::run_model(golden.spec, golden.dir, policy, {golden.documents},
                                          {.cp = cp, .balance_scale = 0.05 * targets});
  EXPECT_NEAR(outcome.aux_loss / golden.value("aux_loss"), 1, 1e-5);
  EXPECT_NEAR(outcome.loss_sum / golden.value("loss_sum"), 1, 1e-5);
  const auto reader = SafetensorsFile::open(golden.dir + "/expected.safetensors");
  std::map<std::string, std::vector<float>> want;
  int balanced = 0;
  for (const TensorInfo& tensor : reader.tensors()) {
    const bool aux = tensor.name.starts_with("aux_grad.");
    if (!aux && !tensor.name.starts_with("grad.")) continue;
    std::vector<float> values(static_cast<std::size_t>(tensor.elements));
    reader.read(tensor, 0, tensor.elements, DType::f32, values.data());
    auto& sum = want[tensor.name.substr(aux ? 9 : 5)];
    sum.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) sum[i] += (aux ? 0.05f : 1.0f) * values[i];
    balanced += aux ? 1 : 0;
  }
  EXPECT_GT(balanced, 0);
  ASSERT_EQ(want.size(), outcome.gradients.size());
  for (const auto& [parameter, values] : want)
    EXPECT_LT(test::relative_difference(outcome.gradients.at(parameter), values, 1 / targets), 1e-5) << parameter;
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenExperts,
                         testing::Combine(testing::Values("qwen3_moe", "qwen3_moe_fused", "mixtral", "mixtral_fused",
                                                          "qwen2_moe"),
                                          testing::Values(1, 3)));

}  // namespace
}  // namespace megatoken
