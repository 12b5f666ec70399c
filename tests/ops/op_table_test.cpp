// Each row of the table on the CPU device, on one thread and on several: right, and the same bits.
#include "ops/op_cases.h"

namespace megatoken {
namespace {

class CpuOpTable : public testing::TestWithParam<OpCase> {};

TEST_P(CpuOpTable, EqualsReferenceWithTheSameBitsOnAnyThreads) {
  const OpCase& op = GetParam();
  const auto one = create_cpu_device(1);
  Rig alone(*one, cpu_op_table(), seed_of(op.name));
  op.run(alone);
  const auto many = create_cpu_device(kTestThreads);
  Rig together(*many, cpu_op_table(), seed_of(op.name));
  op.run(together);
  EXPECT_EQ(alone.written_bytes(), together.written_bytes()) << "the result depends on the number of threads";
}

INSTANTIATE_TEST_SUITE_P(Cases, CpuOpTable, testing::ValuesIn(op_cases()),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace megatoken
