// Cutting values into parts of ranks, also where counts pass 2^31 and bytes 2^32.
#include "comm/reduction.h"

#include <gtest/gtest.h>

namespace megatoken {
namespace {

TEST(Reduction, PartsFollowEachOtherAndAreEqual) {
  for (const int64 count : {int64{0}, int64{1}, int64{7}, int64{1} << 20, (int64{1} << 31) - 1, (int64{1} << 31) + 5,
                            (int64{1} << 33) + 3, (int64{1} << 40) + 1})
    for (const int64 size : {1, 2, 3, 8, 1000}) {
      SCOPED_TRACE(fmt::format("{} elements, {} ranks", count, size));
      int64 end = 0;
      for (int64 r = 0; r < size; ++r) {
        const auto [first, last] = part_of(count, r, size);
        EXPECT_EQ(first, end);
        EXPECT_GE(last - first, count / size);
        EXPECT_LE(last - first, count / size + 1);
        end = last;
      }
      EXPECT_EQ(end, count);
    }
}

}  // namespace
}  // namespace megatoken
