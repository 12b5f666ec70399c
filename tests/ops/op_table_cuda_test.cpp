// Each row of the op table on a CUDA device, against the same reference as the CPU's; and twice, for equal bits.
#include "ops/cuda_rig.h"

namespace megatoken {
namespace {

class CudaOpTable : public testing::TestWithParam<OpCase> {
 protected:
  static void SetUpTestSuite() {
    if (cuda_device_count() > 0) device_ = create_cuda_device(0);
  }
  static void TearDownTestSuite() { device_.reset(); }
  void SetUp() override {
    if (device_ == nullptr) GTEST_SKIP() << "no CUDA device";
  }
  static inline std::unique_ptr<Device> device_;
};

TEST_P(CudaOpTable, EqualsReferenceWithTheSameBitsTwice) {
  const OpCase& op = GetParam();
  Rig first(*device_, cuda_op_table(), seed_of(op.name));
  if (needs_float32_storage(op.name)) {
    try {
      op.run(first);
      ADD_FAILURE() << "not refused";
    } catch (const InternalError& e) {
      EXPECT_NE(std::string(e.what()).find("on CUDA it is stored in bfloat16"), std::string::npos) << e.what();
    }
    return;
  }
  op.run(first);
  Rig second(*device_, cuda_op_table(), seed_of(op.name));
  op.run(second);
  EXPECT_EQ(first.written_bytes(), second.written_bytes()) << "two runs differ";
}

std::vector<OpCase> cases() {
  std::vector<OpCase> chosen = op_cases();
  std::erase_if(chosen, [](const OpCase& op) { return needs_another_tolerance(op.name); });
  return chosen;
}

INSTANTIATE_TEST_SUITE_P(Cases, CudaOpTable, testing::ValuesIn(cases()),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace megatoken
