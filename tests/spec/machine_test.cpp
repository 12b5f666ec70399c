#include "spec/machine.h"

#include "spec_test_support.h"

namespace megatoken {
namespace {

class MachineTest : public ::testing::Test {
 protected:
  MachineTest() { directory_.write("proc/meminfo", "MemTotal:       16000000 kB\nMemFree:        1 kB\n"); }
  Machine detect() { return detect_machine(directory_.path()); }
  testing::TemporaryDirectory directory_;
};

TEST_F(MachineTest, MemoryWithoutCgroup) {
  const Machine machine = detect();
  EXPECT_EQ(machine.host_bytes, 16000000ll * 1024);
  EXPECT_EQ(machine.device_bytes, machine.host_bytes);
  EXPECT_FALSE(machine.host_limited_by_cgroup);
  EXPECT_GE(machine.cores, 1);
}

TEST_F(MachineTest, LowestLimitOfCgroup2Holds) {
  directory_.write("proc/self/cgroup", "0::/kubepods/pod1/main\n");
  directory_.write("sys/fs/cgroup/kubepods/memory.max", "8589934592\n");
  directory_.write("sys/fs/cgroup/kubepods/pod1/memory.max", "4294967296\n");
  directory_.write("sys/fs/cgroup/kubepods/pod1/main/memory.max", "max\n");
  directory_.write("sys/fs/cgroup/kubepods/pod1/cpu.max", "100000 100000\n");
  const Machine machine = detect();
  EXPECT_EQ(machine.host_bytes, int64{4} << 30);
  EXPECT_TRUE(machine.host_limited_by_cgroup);
  EXPECT_EQ(machine.cores, 1);
}

TEST_F(MachineTest, ContainerSeesItsLimitAtTheMount) {
  directory_.write("proc/self/cgroup", "0::/not/here\n");
  directory_.write("sys/fs/cgroup/memory.max", "1073741824\n");
  EXPECT_EQ(detect().host_bytes, int64{1} << 30);
}

TEST_F(MachineTest, Cgroup1) {
  directory_.write("proc/self/cgroup", "4:memory:/docker/a\n2:cpuacct,cpu:/\n0::/\n");
  directory_.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  directory_.write("sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes", "2147483648\n");
  EXPECT_EQ(detect().host_bytes, int64{2} << 30);
}

TEST_F(MachineTest, ALimitAboveTheMemoryIsNone) {
  directory_.write("proc/self/cgroup", "0::/\n");
  directory_.write("sys/fs/cgroup/memory.max", "1099511627776\n");
  EXPECT_FALSE(detect().host_limited_by_cgroup);
}

TEST(Machine, WithoutMeminfo) {
  testing::TemporaryDirectory empty;
  EXPECT_THAT(testing::message_of(ExitCode::failed, [&] { detect_machine(empty.path()); }),
              ::testing::HasSubstr("MemTotal"));
  EXPECT_GT(detect_machine().host_bytes, 0);
}

}  // namespace
}  // namespace megatoken
