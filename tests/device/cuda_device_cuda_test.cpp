// The CUDA device: streams, events, copies, errors, pinned memory. Skipped where there is no device, but for the first.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "base/error.h"
#include "device/cuda/cuda_fixed_bytes.h"
#include "device/cuda/cuda_stream.h"
#include "device/device.h"

namespace megatoken {
namespace {

TEST(CudaDevices, AreRefusedByNameWhereThereIsNone) {
  const int count = cuda_device_count();
  ASSERT_GE(count, 0);
  for (const int index : {count, -1}) {
    try {
      create_cuda_device(index);
      ADD_FAILURE() << "device " << index << " of " << count;
    } catch (const FitError& e) {
      EXPECT_NE(std::string(e.what()).find("CUDA device"), std::string::npos) << e.what();
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    }
  }
}

TEST(CudaDevices, FixedBytesCoverTheStreams) {
  const int64 streams = 2 * cuda_scratch_bytes(StreamMode::in_order_inline) + 3 * cuda_scratch_bytes(StreamMode::own_thread);
  EXPECT_EQ(cuda_fixed_bytes(), kCudaContextBytes + streams);
  for (const int64 ranks : {1, 2, 3, 8}) {
    EXPECT_GE(ranks * cuda_fixed_bytes(ranks), kCudaContextBytes + ranks * streams);
    EXPECT_LT(ranks * cuda_fixed_bytes(ranks), kCudaContextBytes + ranks * (streams + 1));
  }
}

TEST(CudaDevices, UsableBytesAreZeroWhereThereIsNone) {
  const int count = cuda_device_count();
  EXPECT_EQ(cuda_usable_bytes(count), 0);
  for (int index = 0; index < count; ++index) EXPECT_GT(cuda_usable_bytes(index), kCudaContextBytes);
}

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
    device = create_cuda_device(0);
    stream = device->create_stream(StreamMode::in_order_inline);
  }
  std::vector<std::uint8_t> download(const Memory& memory) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(memory.bytes()));
    stream->submit([&](Stream& s) { s.copy(bytes.data(), memory.data(), memory.bytes()); });
    stream->synchronize();
    return bytes;
  }
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
};

TEST_F(CudaDeviceTest, CopiesAndFills) {
  const Memory a = device->allocate(1000, "a"), b = device->allocate(1000, "b");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data()) % 256, 0u);
  std::vector<std::uint8_t> in(1000);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint8_t>(i * 7);
  stream->submit([&](Stream& s) {
    EXPECT_EQ(s.kind(), DeviceKind::cuda);
    s.copy(a.data(), in.data(), 1000);
    s.copy(b.data(), a.data(), 1000);
    s.fill_zero(b.data() + 10, 5);
    s.copy(a.data(), a.data(), 0);
  });
  std::memset(in.data() + 10, 0, 5);
  EXPECT_EQ(download(b), in);
}

TEST_F(CudaDeviceTest, NoBytesAreNoMemoryAndTooManyAreRefused) {
  EXPECT_EQ(device->allocate(0, "nothing").data(), nullptr);
  EXPECT_EQ(device->allocate_host(0, "nothing").data(), nullptr);
  try {
    device->allocate(int64{1} << 50, "a large arena");
    ADD_FAILURE() << "a petabyte";
  } catch (const FitError& e) {
    EXPECT_NE(std::string(e.what()).find("a large arena"), std::string::npos) << e.what();
  }
  stream->synchronize();  // the refusal has left no error behind
}

TEST_F(CudaDeviceTest, PinnedMemoryIsZeroWritableAndAligned) {
  for (const int64 bytes : {int64{1}, int64{4096}, (int64{2} << 20) + 1, int64{300} << 20}) {
    const Memory host = device->allocate_host(bytes, "pinned");
    ASSERT_EQ(host.bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(host.data()) % 256, 0u);
    EXPECT_EQ(host.data()[bytes - 1], std::byte{0});
    host.data()[0] = host.data()[bytes - 1] = std::byte{7};
    const Memory on_device = device->allocate(bytes, "copy");
    stream->submit([&](Stream& s) { s.copy(on_device.data(), host.data(), bytes); });
    EXPECT_EQ(download(on_device).back(), 7);
  }
  EXPECT_THROW(device->allocate_host(int64{1} << 50, "a petabyte"), FitError);
}

TEST_F(CudaDeviceTest, EventsOrderStreams) {
  const auto other = device->create_stream(StreamMode::own_thread);
  constexpr int64 bytes = 64 << 20;
  const Memory a = device->allocate(bytes, "a"), b = device->allocate(bytes, "b");
  std::vector<std::uint8_t> in(bytes, 5);
  for (int i = 0; i < 20; ++i) {
    in.assign(in.size(), static_cast<std::uint8_t>(i));
    other->submit([&](Stream& s) { s.copy(a.data(), in.data(), bytes); });
    stream->wait(other->record());
    stream->submit([&](Stream& s) { s.copy(b.data(), a.data(), bytes); });
    other->wait(stream->record());
  }
  EXPECT_EQ(download(b).back(), 19);
  stream->wait(Event());  // already reached
}

TEST_F(CudaDeviceTest, AfterAFailureTasksAreSkippedUntilItIsSeen) {
  int ran = 0;
  stream->submit([](Stream&) { throw TrainError("first"); });
  stream->submit([&](Stream&) { ++ran; });
  stream->wait(stream->record());
  EXPECT_THROW(stream->synchronize(), TrainError);
  stream->synchronize();
  EXPECT_EQ(ran, 0);
  stream->submit([&](Stream&) { ++ran; });
  EXPECT_EQ(ran, 1);
}

TEST_F(CudaDeviceTest, StreamsOfSeveralThreadsWorkAtOnce) {
  std::vector<std::thread> threads;
  std::vector<int> right(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const auto own = create_cuda_device(0);
      const auto queue = own->create_stream(StreamMode::in_order_inline);
      const Memory memory = own->allocate(1 << 20, "memory");
      std::vector<std::uint8_t> value(1 << 20, static_cast<std::uint8_t>(t)), back(1 << 20, 99);
      for (int i = 0; i < 50; ++i)
        queue->submit([&](Stream& s) {
          s.copy(memory.data(), value.data(), 1 << 20);
          s.copy(back.data(), memory.data(), 1 << 20);
        });
      queue->synchronize();
      right[static_cast<std::size_t>(t)] = back == value;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(4, 1));
}

TEST_F(CudaDeviceTest, StateBelongsToItsStream) {
  struct Counter {
    explicit Counter(CudaStream&) {}
    int value = 0;
  };
  const auto other = device->create_stream(StreamMode::own_thread);
  cuda_stream(*stream).attached<Counter>().value = 3;
  EXPECT_EQ(cuda_stream(*stream).attached<Counter>().value, 3);
  EXPECT_EQ(cuda_stream(*other).attached<Counter>().value, 0);
  EXPECT_EQ(cuda_stream(*stream).scratch_bytes(), kComputeScratchBytes);
  const auto cpu = create_cpu_device(1)->create_stream(StreamMode::in_order_inline);
  EXPECT_THROW(cuda_stream(*cpu), InternalError);
  EXPECT_THROW(cpu->wait(stream->record()), InternalError);
}

}  // namespace
}  // namespace megatoken
