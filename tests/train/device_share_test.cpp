// What a rank may take of a GPU that it shares.
#include <gtest/gtest.h>

#include "device/cuda/cuda_fixed_bytes.h"
#include "train/machine_rates.h"
#include "train/planned_run.h"

namespace megatoken {
namespace {

PlannedRun plan(const RunShape& shape, const PlanBudget& budget) {
  return plan_run(shape, {}, {}, budget, default_rates(true, 1));
}

TEST(DeviceShare, RanksOnOneGpuShareItsBytesAndItsContext) {
  RunShape shape;
  shape.model = ModelSpec::from_directory(std::string(MEGATOKEN_TEST_DATA) + "/golden/qwen3_tied");
  shape.mesh.cp = 4;
  shape.dtype = DType::bf16;
  shape.on_cuda = true;
  shape.train_documents = {4096};
  Machine machine;
  machine.device_bytes = int64{8} << 30;
  machine.host_bytes = int64{64} << 30;

  const PlanBudget whole = budget_of({}, machine, 4, true), quarter = budget_of({}, machine, 4, true, 4);
  EXPECT_EQ(whole.device_bytes, machine.device_bytes);
  EXPECT_EQ(quarter.device_bytes, machine.device_bytes / 4);
  EXPECT_EQ(quarter.host_bytes, machine.host_bytes / 4);
  PlannerOptions pinned;
  pinned.device_memory = int64{2} << 30;
  EXPECT_EQ(budget_of(pinned, machine, 4, true, 4).device_bytes, *pinned.device_memory / 4);

  const PlannedRun own = plan(shape, whole);
  EXPECT_EQ(own.fixed_bytes, cuda_fixed_bytes() + kNcclBytes);
  shape.ranks_per_device = 4;
  const PlannedRun shared = plan(shape, quarter);
  EXPECT_EQ(shared.fixed_bytes, cuda_fixed_bytes(4));
  EXPECT_LT(4 * shared.fixed_bytes, 4 * cuda_fixed_bytes() - 2 * kCudaContextBytes);
  EXPECT_TRUE(shared.fits());
  EXPECT_EQ(shared.state_bytes, own.state_bytes);
  // What fits a GPU of its own need not fit a quarter of it.
  const PlanBudget small{own.device_bytes(), int64{64} << 30, false};
  EXPECT_TRUE(plan(shape, small).fits());
  EXPECT_FALSE(plan(shape, {small.device_bytes / 16, small.host_bytes, false}).fits());
}

}  // namespace
}  // namespace megatoken
