#include "base/byte_text.h"

#include <gtest/gtest.h>

namespace megatoken {
namespace {

TEST(ByteText, TakesTheLargestUnitOfWhichThereIsAWholeOne) {
  EXPECT_EQ(size_text(0), "0.0 KiB");
  EXPECT_EQ(size_text(512), "0.5 KiB");
  EXPECT_EQ(size_text((1 << 20) - 1), "1024.0 KiB");
  EXPECT_EQ(size_text(1 << 20), "1.0 MiB");
  EXPECT_EQ(size_text(int64{3} << 29), "1.50 GiB");
  EXPECT_EQ(size_text(int64{5} << 40), "5120.00 GiB");
}

}  // namespace
}  // namespace megatoken
