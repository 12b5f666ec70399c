#include "io/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/error.h"

namespace megatoken {
namespace {

template <typename To, typename From>
std::vector<To> converted(DType from, const std::vector<From>& values, DType to) {
  std::vector<To> out(values.size());
  convert_elements(from, values.data(), to, out.data(), static_cast<int64>(values.size()));
  return out;
}

TEST(Convert, EveryHalfIsExact) {
  std::vector<std::uint16_t> halves(1 << 16);
  std::iota(halves.begin(), halves.end(), std::uint16_t{0});
  const auto floats = converted<float>(DType::f16, halves, DType::f32);
  const auto rounded = converted<std::uint16_t>(DType::f16, halves, DType::bf16);
  for (std::size_t h = 0; h < halves.size(); ++h) {
    const float expected = f16_to_float(halves[h]);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(floats[h]), std::bit_cast<std::uint32_t>(expected)) << h;
    ASSERT_EQ(rounded[h], bf16(expected).bits) << h;
  }
}

TEST(Convert, EveryBf16IsExactAndReturns) {
  std::vector<std::uint16_t> values(1 << 16);
  std::iota(values.begin(), values.end(), std::uint16_t{0});
  const auto floats = converted<float>(DType::bf16, values, DType::f32);
  const auto back = converted<std::uint16_t>(DType::f32, floats, DType::bf16);
  for (std::size_t b = 0; b < values.size(); ++b) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(floats[b]), static_cast<std::uint32_t>(b) << 16);
    if (!std::isnan(floats[b])) {
      ASSERT_EQ(back[b], values[b]);
    }
  }
}

// Ties go to the even neighbour; overflow becomes infinity; NaN stays NaN even when its payload lies in the lost half.
TEST(Convert, FloatToBf16RoundsToNearestEven) {
  const std::vector<std::uint32_t> bits{0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF,
                                        0x7F7FFFFF, 0x7F800001, 0xFF800000};
  const std::vector<std::uint16_t> expected{0x3F80, 0x3F82, 0x3F81, 0x3F80, 0x7F80, 0x7FC0, 0xFF80};
  EXPECT_EQ(converted<std::uint16_t>(DType::f32, bits, DType::bf16), expected);
}

TEST(Convert, NeedsNoAlignment) {
  std::vector<std::byte> source(9), target(9);
  const float value = 1.5f;
  std::memcpy(source.data() + 1, &value, 4);
  convert_elements(DType::f32, source.data() + 1, DType::bf16, target.data() + 3, 1);
  std::uint16_t bits = 0;
  std::memcpy(&bits, target.data() + 3, 2);
  EXPECT_EQ(bits, 0x3FC0);
}

TEST(Convert, RefusesOtherPairs) {
  EXPECT_FALSE(convertible(DType::i64, DType::f32));
  EXPECT_TRUE(convertible(DType::i64, DType::i64));
  float out = 0;
  EXPECT_THROW(convert_elements(DType::f64, &out, DType::f32, &out, 0), InternalError);
}

}  // namespace
}  // namespace megatoken
