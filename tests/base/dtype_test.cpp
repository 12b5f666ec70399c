#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace megatoken {
namespace {

TEST(Bf16, RoundsToNearestTiesToEven) {
  EXPECT_EQ(bf16(1.0f).bits, 0x3F80);
  EXPECT_EQ(bf16(1.0f + 0x1p-8f).bits, 0x3F80);            // tie, even stays
  EXPECT_EQ(bf16(1.0f + 0x1p-7f + 0x1p-8f).bits, 0x3F82);  // tie, odd goes up
  EXPECT_EQ(bf16(1.0f + 0x1p-8f + 0x1p-20f).bits, 0x3F81);
  EXPECT_EQ(bf16(std::numeric_limits<float>::infinity()).bits, 0x7F80);
  EXPECT_TRUE(std::isnan(static_cast<float>(bf16(std::nanf("")))));
}

TEST(F16, ConvertsEveryClass) {
  EXPECT_EQ(f16_to_float(0x3C00), 1.0f);
  EXPECT_EQ(f16_to_float(0xC000), -2.0f);
  EXPECT_EQ(f16_to_float(0x7BFF), 65504.0f);
  EXPECT_EQ(f16_to_float(0x0001), 0x1p-24f);
  EXPECT_EQ(f16_to_float(0x8000), 0.0f);
  EXPECT_TRUE(std::isinf(f16_to_float(0x7C00)));
  EXPECT_TRUE(std::isnan(f16_to_float(0x7E00)));
}

}  // namespace
}  // namespace megatoken
