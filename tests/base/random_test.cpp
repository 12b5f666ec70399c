#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/error.h"

namespace megatoken {
namespace {

// kat_vectors of the Random123 distribution (Salmon et al. 2011), philox4x32 with 10 rounds.
TEST(Philox, KnownAnswers) {
  using Block = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Block{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  constexpr std::uint32_t kOnes = 0xFFFFFFFF;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Block{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(philox4x32({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0}),
            (Block{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(Random, DrawsDependOnSeedStreamAndIndexAlone) {
  const Random a(1, 2);
  EXPECT_EQ(a.bits(7), philox4x32({1, 0, 2, 0}, {1, 0})[3]);
  EXPECT_EQ(a.bits((std::uint64_t{1} << 40) + 1), philox4x32({0, 64, 2, 0}, {1, 0})[1]);
  EXPECT_EQ(a.bits64(3), static_cast<std::uint64_t>(a.bits(7)) << 32 | a.bits(6));
  EXPECT_NE(a.bits(0), Random(1, 3).bits(0));
  EXPECT_NE(a.bits(0), Random(2, 2).bits(0));
}

TEST(Random, UniformCoversZeroToOne) {
  const Random random(3, 4);
  double sum = 0, smallest = 1, largest = 0;
  constexpr int n = 100000;
  for (int i = 0; i < n; ++i) {
    const double x = static_cast<double>(random.uniform(static_cast<std::uint64_t>(i)));
    sum += x;
    smallest = std::min(smallest, x);
    largest = std::max(largest, x);
  }
  EXPECT_NEAR(sum / n, 0.5, 0.005);
  EXPECT_GE(smallest, 0);
  EXPECT_LT(smallest, 1e-4);
  EXPECT_LT(largest, 1);
  EXPECT_GT(largest, 1 - 1e-4);
}

TEST(Random, NormalHasTheMomentsOfANormal) {
  const Random random(5, 6);
  constexpr int n = 200000;
  double moment[5] = {};
  double neighbours = 0, last = 0;
  for (int i = 0; i < n; ++i) {
    const double x = static_cast<double>(random.normal(static_cast<std::uint64_t>(i)));
    for (int p = 1; p <= 4; ++p) moment[p] += std::pow(x, p) / n;
    neighbours += x * last / n;
    last = x;
  }
  EXPECT_NEAR(moment[1], 0, 0.01);
  EXPECT_NEAR(moment[2], 1, 0.015);
  EXPECT_NEAR(moment[3], 0, 0.04);
  EXPECT_NEAR(moment[4], 3, 0.1);
  EXPECT_NEAR(neighbours, 0, 0.01);
}

TEST(Random, AnyShardEqualsThatPartOfTheWhole) {
  const Random random(7, 8);
  std::vector<float> whole(1000);
  random.fill_normal(whole, 5, 1.0f, 0.02f);
  for (const std::size_t first : {0u, 1u, 2u, 3u, 4u, 501u}) {
    for (const std::size_t count : {0u, 1u, 2u, 3u, 7u, 400u}) {
      std::vector<float> shard(count);
      random.fill_normal(shard, 5 + first, 1.0f, 0.02f);
      for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(shard[i], whole[first + i]) << first << '+' << i;
    }
  }
  EXPECT_FLOAT_EQ(whole[9], 1.0f + 0.02f * random.normal(14));
}

TEST(Random, BelowIsEvenAndInRange) {
  const Random random(9, 10);
  std::vector<int> counts(6);
  for (std::uint64_t i = 0; i < 60000; ++i) ++counts[random.below(i, 6)];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 400);
  EXPECT_EQ(random.below(1, 1), 0u);
  const std::uint64_t large = (std::uint64_t{1} << 63) + 1;  // nearly half of all draws are rejected
  for (std::uint64_t i = 0; i < 1000; ++i) EXPECT_LT(random.below(i, large), large);
  EXPECT_THROW(random.below(0, 0), InternalError);
}

}  // namespace
}  // namespace megatoken
