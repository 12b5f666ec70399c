// The gradients of a GPU against transformers' in float32 (tests/golden/README.md).
#include <gtest/gtest.h>

#include <iostream>

#include "model/golden_case.h"

namespace megatoken {
namespace {

using test::Golden;

class GoldenModelOnGpu : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_P(GoldenModelOnGpu, Bfloat16GradientsAreAsCloseAsTransformers) {
  const Golden golden(GetParam());
  const auto outcome = test::run_model(golden.spec, golden.dir, test::plain_policy(golden.spec), {golden.documents},
                                       {.dtype = DType::bf16, .on_cuda = true});
  EXPECT_EQ(outcome.targets, golden.expected["target_tokens"].get<int64>());
  EXPECT_NEAR(outcome.loss_sum / golden.value("loss_sum"), 1, 5e-3);
  const double error = test::gradient_error(golden, outcome), bound = golden.expected["bf16"]["model"]["all"].get<double>();
  std::cout << GetParam() << ": gradient error " << error << ", transformers' " << bound << "\n";
  EXPECT_LT(error, 1.2 * bound);
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenModelOnGpu, testing::ValuesIn(test::kGoldenCases));

}  // namespace
}  // namespace megatoken
