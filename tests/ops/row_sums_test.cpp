// Sums along rows are as exact in a build without vectors as in one with the widest.
#include "ops/cpu/row_sums.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"

namespace megatoken {
namespace {

// The definition, in plain floats.
float plain_sum(const std::vector<float>& terms) {
  float sums[kPartialSums] = {};
  for (std::size_t j = 0; j < terms.size(); ++j) sums[j % kPartialSums] += terms[j];
  for (int64 half = kPartialSums / 2; half > 0; half /= 2)
    for (int64 i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sums[0];
}

TEST(RowSums, HaveTheSameBitsWhateverTheVectors) {
  for (const int64 n : {0, 1, 3, 16, 31, 32, 33, 64, 100, 4097}) {
    std::vector<float> x(static_cast<std::size_t>(n));
    Random(7, static_cast<std::uint64_t>(n)).fill_normal(x, 0, 0.0f, 1.0f);
    EXPECT_EQ(sum_terms(n, [&](int64 j, int64 lanes) { return load_first(x.data() + j, lanes); }), plain_sum(x)) << n;
  }
}

// One float32 sum of so many equal terms stops growing at 2^24.
TEST(RowSums, StayExactOnLongRows) {
  const std::vector<float> x(20'000'000, 1.0f);
  EXPECT_EQ(inverse_rms(x.data(), static_cast<int64>(x.size()), 0.0f), 1.0f);
}

TEST(RowSums, OfStoredBf16) {
  const std::vector<bf16> x(77, bf16(2.0f));
  EXPECT_EQ(inverse_rms(x.data(), 77, 0.0f), 0.5f);
}

}  // namespace
}  // namespace megatoken
