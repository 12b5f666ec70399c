#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fstream>
#include <limits>
#include <thread>
#include <vector>

#include "base/error.h"
#include "device/cpu/cpu_stream.h"
#include "device/device.h"

namespace megatoken {
namespace {

int64 resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64 size = 0, resident = 0;
  statm >> size >> resident;
  return resident * 4096;
}

TEST(CpuMemory, IsAlignedAndOfAnySize) {
  const auto device = create_cpu_device(1);
  for (const int64 bytes : {int64{1}, int64{255}, int64{256}, int64{4095}, int64{4} << 20, (int64{6} << 20) + 4097}) {
    const Memory memory = device->allocate(bytes, "buffer");
    ASSERT_NE(memory.data(), nullptr);
    EXPECT_EQ(memory.bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 256, 0u);
    std::memset(memory.data(), 1, static_cast<std::size_t>(bytes));
  }
  EXPECT_EQ(device->allocate(0, "nothing").bytes(), 0);
  EXPECT_THROW(device->allocate(-1, "less"), InternalError);
}

TEST(CpuMemory, IsResidentOnceTouchedAndGoneWhenReleased) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep shadow memory beside what is touched";
#endif
  const auto device = create_cpu_device(1);
  constexpr int64 size = int64{256} << 20;
  constexpr int64 slack = int64{8} << 20;
  const int64 before = resident_bytes();
  Memory memory = device->allocate(size, "buffer");
  EXPECT_LT(resident_bytes(), before + slack);
  std::memset(memory.data(), 1, size / 4);
  EXPECT_LT(resident_bytes(), before + size / 4 + slack);
  std::memset(memory.data(), 1, size);
  EXPECT_GT(resident_bytes(), before + size - slack);
  memory.reset();
  EXPECT_LT(resident_bytes(), before + slack);
}

TEST(CpuMemory, RefusesWhatIsNotThereByName) {
  const auto device = create_cpu_device(1);
  for (const int64 bytes : {int64{1} << 55, std::numeric_limits<int64>::max()}) {
    try {
      device->allocate(bytes, "the arena");
      FAIL() << "allocated " << bytes;
    } catch (const FitError& e) {
      EXPECT_NE(std::string(e.what()).find("the arena"), std::string::npos) << e.what();
    }
  }
}

TEST(CudaDevice, IsRefusedWhereThereIsNone) {
  if (cuda_device_count() > 0) GTEST_SKIP() << "there is a GPU";
  EXPECT_THROW(create_cuda_device(0), FitError);
}

TEST(InlineStream, RunsBeforeSubmitReturns) {
  const auto device = create_cpu_device(3);
  const auto stream = device->create_stream(StreamMode::in_order_inline);
  EXPECT_EQ(stream->kind(), DeviceKind::cpu);
  const auto caller = std::this_thread::get_id();
  bool ran = false;
  stream->submit([&](Stream& s) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(cpu_threads(s), 3);
    ran = true;
  });
  EXPECT_TRUE(ran);
  stream->wait(stream->record());
  stream->wait(Event());
}

class EveryStream : public testing::TestWithParam<StreamMode> {
 protected:
  std::unique_ptr<Device> device = create_cpu_device(1);
  std::unique_ptr<Stream> stream = device->create_stream(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Modes, EveryStream, testing::Values(StreamMode::in_order_inline, StreamMode::own_thread));

TEST_P(EveryStream, KeepsOrder) {
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) stream->submit([&order, i](Stream&) { order.push_back(i); });
  stream->synchronize();
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST_P(EveryStream, CopiesAndClears) {
  std::vector<std::uint8_t> a(10000, 7), b(10000, 1);
  stream->submit([&](Stream& s) {
    s.copy(b.data(), a.data(), 9000);
    s.fill_zero(a.data(), 500);
    s.copy(b.data(), nullptr, 0);
  });
  stream->synchronize();
  EXPECT_EQ(b[8999], 7);
  EXPECT_EQ(b[9000], 1);
  EXPECT_EQ(a[499], 0);
  EXPECT_EQ(a[500], 7);
}

TEST_P(EveryStream, FirstErrorSurfacesOnceAndSkipsTheRest) {
  int ran = 0;
  stream->submit([&](Stream&) { ++ran; });
  stream->submit([](Stream&) { throw TrainError("the first"); });
  stream->submit([](Stream&) { throw TrainError("the second"); });
  stream->submit([&](Stream&) { ++ran; });
  const Event after = stream->record();
  try {
    stream->synchronize();
    FAIL() << "no error";
  } catch (const TrainError& e) {
    EXPECT_STREQ(e.what(), "the first");
  }
  EXPECT_EQ(ran, 1);
  stream->wait(after);  // an event is reached although tasks before it were skipped
  stream->submit([&](Stream&) { ++ran; });
  stream->synchronize();
  EXPECT_EQ(ran, 2);
}

TEST(WorkerStream, RunsOnItsOwnThreadWithOneOpenMpThread) {
  const auto device = create_cpu_device(3);
  const auto stream = device->create_stream(StreamMode::own_thread);
  std::thread::id worker;
  int threads = 0;
  stream->submit([&](Stream& s) {
    worker = std::this_thread::get_id();
    threads = cpu_threads(s);
  });
  stream->synchronize();
  EXPECT_NE(worker, std::this_thread::get_id());
  EXPECT_EQ(threads, 1);
}

TEST(WorkerStream, SubmitAndWaitDoNotBlockTheCaller) {
  const auto device = create_cpu_device(1);
  const auto slow = device->create_stream(StreamMode::own_thread);
  const auto after = device->create_stream(StreamMode::own_thread);
  std::atomic<bool> release = false, done = false;
  slow->submit([&](Stream&) {
    while (!release) std::this_thread::yield();
  });
  const Event event = slow->record();
  after->wait(event);
  after->submit([&](Stream&) { done = true; });
  EXPECT_FALSE(done);  // the caller came here although the event has not been reached
  release = true;
  after->synchronize();
  EXPECT_TRUE(done);
}

TEST(WorkerStream, ComputeWaitsForAnEvent) {
  const auto device = create_cpu_device(1);
  const auto compute = device->create_stream(StreamMode::in_order_inline);
  const auto worker = device->create_stream(StreamMode::own_thread);
  int value = 0;  // handed over through the event alone
  for (int i = 1; i <= 200; ++i) {
    worker->submit([&value, i](Stream&) { value = i; });
    compute->wait(worker->record());
    EXPECT_EQ(value, i);
  }
}

TEST(WorkerStream, ChainsOfEventsAcrossStreams) {
  const auto device = create_cpu_device(1);
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 3; ++i) streams.push_back(device->create_stream(StreamMode::own_thread));
  std::vector<int> order;
  Event last;
  for (int i = 0; i < 300; ++i) {
    Stream& stream = *streams[static_cast<std::size_t>(i % 3)];
    stream.wait(last);
    stream.submit([&order, i](Stream&) { order.push_back(i); });
    last = stream.record();
  }
  for (const auto& stream : streams) stream->synchronize();
  ASSERT_EQ(order.size(), 300u);
  for (int i = 0; i < 300; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(WorkerStream, DestructionFinishesQueuedWorkAndDropsErrors) {
  const auto device = create_cpu_device(1);
  int ran = 0;
  {
    const auto stream = device->create_stream(StreamMode::own_thread);
    for (int i = 0; i < 50; ++i) stream->submit([&](Stream&) { ++ran; });
    stream->submit([](Stream&) { throw TrainError("nobody asks"); });
  }
  EXPECT_EQ(ran, 50);
}

// A task's captures are gone when synchronize() has returned: what they hold may be freed.
TEST(WorkerStream, ReleasesTasksBeforeSynchronizeReturns) {
  const auto device = create_cpu_device(1);
  const auto stream = device->create_stream(StreamMode::own_thread);
  for (int i = 0; i < 100; ++i) {
    auto held = std::make_shared<int>(i);
    const std::weak_ptr<int> watch = held;
    stream->submit([held = std::move(held)](Stream&) {});
    stream->synchronize();
    EXPECT_TRUE(watch.expired());
  }
}

TEST(WorkerStream, SleepsWhileIdle) {
  const auto device = create_cpu_device(1);
  const auto stream = device->create_stream(StreamMode::own_thread);
  stream->synchronize();
  const std::clock_t before = std::clock();  // processor time of the whole process
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(std::clock() - before, CLOCKS_PER_SEC / 20);
}

}  // namespace
}  // namespace megatoken
