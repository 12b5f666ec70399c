#include "comm/device_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/run_ranks.h"
#include "comm/simulated_gpu.h"

namespace megatoken {
namespace {

Seat gpu(const std::string& process, const std::string& hardware) { return {process, hardware, DeviceKind::cuda}; }

TEST(DeviceGroup, TransportFollowsFromSeats) {
  EXPECT_EQ(choose_transport({gpu("a", "0")}), DeviceTransport::none);
  EXPECT_EQ(choose_transport({{}, {}}), DeviceTransport::host);
  EXPECT_EQ(choose_transport({gpu("a", "0"), gpu("a", "0")}), DeviceTransport::threads);
  EXPECT_EQ(choose_transport({gpu("a", "0"), gpu("a", "1"), gpu("a", "0"), gpu("a", "1")}), DeviceTransport::threads);
  EXPECT_EQ(choose_transport({gpu("a", "0"), gpu("a", "1")}), DeviceTransport::nccl);
  EXPECT_EQ(choose_transport({gpu("a", "0"), gpu("b", "1")}), DeviceTransport::nccl);
  EXPECT_EQ(choose_transport({gpu("a", "0"), gpu("a", "1"), gpu("b", "2"), gpu("b", "3")}), DeviceTransport::nccl);
}

TEST(DeviceGroup, ProcessesThatShareAGpuAreRefusedByRank) {
  EXPECT_THAT(
      [] {
        choose_transport({gpu("a", "0"), gpu("b", "1"), gpu("c", "1")});
      },
      testing::ThrowsMessage<ConfigError>(testing::HasSubstr("ranks 1 and 2 are given the same GPU")));
  // Threads of two processes, in each of which one GPU serves both.
  EXPECT_THAT(
      [] {
        choose_transport({gpu("a", "0"), gpu("a", "0"), gpu("b", "1"), gpu("b", "1")});
      },
      testing::ThrowsMessage<ConfigError>(testing::HasSubstr("ranks 0 and 1")));
  EXPECT_THAT(
      [] {
        choose_transport({gpu("a", "0"), {}});
      },
      testing::ThrowsMessage<ConfigError>(testing::HasSubstr("ranks 0 and 1 work on devices of different kinds")));
}

TEST(DeviceGroup, ThreadsThatShareADeviceKeepTheirGroup) {
  SimulatedGpu simulated;
  for (const bool cpu : {true, false}) {
    run_ranks(3, [&](Group& world) {
      const auto device = cpu ? create_cpu_device(1) : std::make_unique<SimulatedDevice>(simulated, world.rank(), 3);
      const std::shared_ptr<Group> host = world.split(world.rank() / 2);
      const auto group = create_device_group(host, *device);
      EXPECT_EQ(group->size(), host->size());
      EXPECT_EQ(group->rank(), host->rank());
      EXPECT_EQ(group == host, host->size() > 1);
      EXPECT_EQ(group->abort_state(), world.abort_state());
    });
  }
}

}  // namespace
}  // namespace megatoken
