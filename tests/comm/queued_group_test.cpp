// Thread ranks whose operations are only queued, as on CUDA streams: the whole suite and a step's traffic on a
// simulated GPU, in the worst orders that the events allow.
#include <gmock/gmock.h>

#include "comm/group_traffic.h"
#include "comm/run_ranks.h"
#include "comm/simulated_gpu.h"
#include "comm/staging_group.h"

namespace megatoken {
namespace {

void run_simulated(int64 size, const std::function<void(Group&, Stream&)>& body) {
  SimulatedGpu gpu;
  run_ranks(size, [&](Group& world) {
    SimulatedDevice device(gpu, world.rank(), size);
    const auto stream = device.create_stream(StreamMode::own_thread);
    // The suite wants to keep the group, run_ranks lends it.
    StagingGroup group(std::shared_ptr<Group>(&world, [](Group*) {}), device);
    stream->submit([&](Stream& on) { body(group, on); });
    stream->synchronize();
  });
}

std::string name(const testing::TestParamInfo<GroupImplementation>& info) {
  return fmt::format("{}{}", info.param.name, info.param.size);
}

INSTANTIATE_TEST_SUITE_P(Simulated, GroupConformance,
                         testing::Values(GroupImplementation{"simulated", 1, run_simulated},
                                         GroupImplementation{"simulated", 2, run_simulated},
                                         GroupImplementation{"simulated", 5, run_simulated}),
                         name);

// Each rank's streams in turn run ahead of all others, and in turn lag behind all others.
TEST(QueuedGroup, NoOrderOfStreamsSpoilsAnything) {
  for (const int64 size : {2, 3, 4}) {
    for (int64 first = 0; first < 2 * size; ++first) {
      SCOPED_TRACE(testing::Message() << size << " ranks, first stream " << first);
      SimulatedGpu gpu;
      run_ranks(size, [&](Group& world) {
        SimulatedDevice device(gpu, 2 * world.rank() + first, 2 * size);
        run_traffic(world, device);
        world.barrier();  // memory stays until every rank has compared
      });
    }
  }
}

// The same with threads that truly run at once, for the thread sanitizer.
TEST(QueuedGroup, TrafficOnCpuStreams) {
  run_ranks(3, [](Group& world) {
    const auto device = create_cpu_device(1);
    run_traffic(world, *device);
    world.barrier();
  });
}

TEST(QueuedGroup, AnErrorInARanksShareIsItsOwnAndNobodyHangs) {
  SimulatedGpu gpu;
  EXPECT_THAT(
      [&] {
        run_ranks(3, [&](Group& world) {
          SimulatedDevice device(gpu, world.rank(), 3);
          const auto stream = device.create_stream(StreamMode::own_thread);
          const Memory a = device.allocate(64, "a"), b = device.allocate(64, "b");
          stream->submit([&](Stream& s) {
            const int64 from = world.rank() == 2 ? 0 : (world.rank() + 2) % 3;  // rank 0 sends to rank 1
            world.send_receive(s, a.data(), (world.rank() + 1) % 3, b.data(), from, 64);
          });
          stream->synchronize();
          for (;;) world.barrier();
        });
      },
      testing::ThrowsMessage<InternalError>(testing::HasSubstr("rank 2 receives from rank 0, which sends to rank 1")));
}

}  // namespace
}  // namespace megatoken
