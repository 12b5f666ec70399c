// What a rank may take of a GPU that it shares.
#include <gtest/gtest.h>

#include "device/cuda/cuda_fixed_bytes.h"
#include "train/machine_rates.h"
#include "train/planned_run.h"
#include "train/target.h"

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

// A plan is of what training would do with this machine's GPUs, unless it asks for more than they are.
TEST(DeviceShare, PlansShareGpusAsTrainingDoes) {
  const Devices two{2, [](int64) { return int64{80} << 30; }};
  const auto share = [&](const std::string& more, int64 ranks, Purpose purpose) {
    const RunConfig config = parse_run_config("model_name_or_path: m\ndevice: cuda\n" + more, "test");
    const Target target = choose_target(config, ranks, purpose, {}, two);
    EXPECT_EQ(target.machine.device_bytes, int64{80} << 30);
    return target.ranks_per_device;
  };
  for (const Purpose purpose : {Purpose::train, Purpose::evaluate, Purpose::plan}) {
    EXPECT_EQ(share("", 1, purpose), 1);
    EXPECT_EQ(share("", 2, purpose), 1);
    EXPECT_EQ(share("", 3, purpose), 2);
    EXPECT_EQ(share("", 8, purpose), 4);
    EXPECT_EQ(share("device_memory: 20GiB\n", 8, purpose), 4);
  }
  EXPECT_EQ(share("", 8, Purpose::rehearse), 1);
  EXPECT_EQ(share("device_memory: 24GiB\n", 8, Purpose::plan), 1) << "eight times 24 GiB are not here";
  EXPECT_EQ(share("host_memory: 1000TiB\n", 8, Purpose::plan), 1);
  EXPECT_EQ(share("num_machines: 2\n", 8, Purpose::plan), 1);
  const RunConfig config = parse_run_config("model_name_or_path: m\ndevice: cuda\n", "test");
  EXPECT_NE(describe(choose_target(config, 8, Purpose::plan, {}, two)).find("for 4 ranks"), std::string::npos);
}

}  // namespace
}  // namespace megatoken
