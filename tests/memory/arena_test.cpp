#include "memory/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "base/error.h"

namespace megatoken {
namespace {

TEST(Arena, HasBothPlaces) {
  const auto device = create_cpu_device(1);
  const Arena arena(*device, {1000, 300}, nullptr, {.poison = false});
  EXPECT_EQ(arena.bytes(Place::device), 1000);
  EXPECT_EQ(arena.bytes(Place::host), 300);
  std::memset(arena.data(Place::device), 1, 1000);
  std::memset(arena.data(Place::host), 2, 300);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.data(Place::device)) % 256, 0u);
  const Arena none(*device, {0, 0}, nullptr, {.poison = true});
  EXPECT_EQ(none.data(Place::device), nullptr);
}

TEST(Arena, PoisonIsNanEverywhere) {
  const auto device = create_cpu_device(1);
  constexpr int64 kBytes = (int64{3} << 20) + 512;  // more than one pattern
  const Arena arena(*device, {kBytes, 256}, nullptr, {.poison = true});
  const auto* values = reinterpret_cast<const float*>(arena.data(Place::device));
  for (int64 i = 0; i < kBytes / 4; ++i) ASSERT_TRUE(values[i] != values[i]);
  std::memset(arena.data(Place::device), 0, static_cast<std::size_t>(kBytes));
  const auto stream = device->create_stream(StreamMode::in_order_inline);
  stream->submit([&](Stream& on) { arena.poison(on, Place::device, 256, (int64{2} << 20) + 4); });
  stream->synchronize();
  EXPECT_EQ(values[63], 0);
  EXPECT_TRUE(values[64] != values[64]);
  EXPECT_TRUE(values[64 + (1 << 19)] != values[64 + (1 << 19)]);
  EXPECT_EQ(values[65 + (1 << 19)], 0);
  EXPECT_THROW(arena.poison(*stream, Place::device, 0, kBytes + 1), InternalError);
}

TEST(PinnedPool, IsCutIntoPiecesOfAllThreads) {
  const auto device = create_cpu_device(1);
  PinnedPool pool(*device, 8 * 1024);
  std::array<Memory, 8> pieces;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    threads.emplace_back([&, i] {
      pieces[i] = pool.take(1000, "piece");
      std::memset(pieces[i].data(), static_cast<int>(i), 1000);
    });
  for (auto& thread : threads) thread.join();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(pieces[i].bytes(), 1000);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pieces[i].data()) % 256, 0u);
    EXPECT_EQ(static_cast<int>(pieces[i].data()[999]), static_cast<int>(i));
  }
  EXPECT_EQ(pool.taken(), 8 * 1024);
  EXPECT_THAT([&] { pool.take(1, "host arena"); },
              testing::ThrowsMessage<FitError>(testing::HasSubstr("host arena needs 256 bytes of pinned host memory")));
}

TEST(PinnedPool, MemoryOutlivesThePool) {
  const auto device = create_cpu_device(1);
  Memory memory;
  {
    PinnedPool pool(*device, 4096);
    memory = pool.take(4096, "all");
  }
  std::memset(memory.data(), 1, 4096);
}

TEST(PinnedPool, GivesTheHostArena) {
  const auto device = create_cpu_device(1);
  PinnedPool pool(*device, 1024);
  const Arena arena(*device, {256, 512}, &pool);
  EXPECT_EQ(pool.taken(), 512);
  EXPECT_THROW(Arena(*device, {256, 1024}, &pool), FitError);
}

}  // namespace
}  // namespace megatoken
