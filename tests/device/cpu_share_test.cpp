#include "device/cpu/cpu_share.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"

namespace megatoken {
namespace {

cpu_set_t allowed() {
  cpu_set_t set;
  EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  return set;
}

// Shares are disjoint, as even as can be, together everything; threads started meanwhile are bound too.
TEST(CpuShare, SharesOutTheProcessors) {
  const cpu_set_t before = allowed();
  const int64 processors = CPU_COUNT(&before);
  for (int64 shares = 1; shares <= processors; ++shares) {
    cpu_set_t seen;
    CPU_ZERO(&seen);
    int64 sum = 0;
    for (int64 share = 0; share < shares; ++share) {
      const CpuShare bound(share, shares);
      cpu_set_t mine;
      std::thread([&] { mine = allowed(); }).join();
      const int64 count = CPU_COUNT(&mine);
      EXPECT_GE(count, processors / shares);
      EXPECT_LE(count, processors / shares + 1);
      sum += count;
      CPU_OR(&seen, &seen, &mine);
    }
    EXPECT_EQ(sum, processors);
    EXPECT_TRUE(CPU_EQUAL(&seen, &before));
    const cpu_set_t after = allowed();
    EXPECT_TRUE(CPU_EQUAL(&after, &before)) << "not given back";
  }
}

TEST(CpuShare, BindsNothingWhereThereAreMoreSharesThanProcessors) {
  const cpu_set_t before = allowed();
  const CpuShare bound(1, CPU_COUNT(&before) + 1);
  const cpu_set_t now = allowed();
  EXPECT_TRUE(CPU_EQUAL(&now, &before));
}

TEST(CpuShare, RefusesAShareThatIsNotThere) { EXPECT_THROW(CpuShare(2, 2), InternalError); }

}  // namespace
}  // namespace megatoken
