// A way to run a function as every rank of a group, to instantiate the suite of group_conformance.h with, and the
// values that it sends around. That header itself is included by one file of a test program.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <ostream>
#include <vector>

#include "comm/group.h"
#include "device/device.h"

namespace megatoken {

struct GroupImplementation {
  const char* name;
  int64 size;
  // Runs `body` as every rank and rethrows the culprit's exception.
  std::function<void(int64 size, const std::function<void(Group&, Stream&)>& body)> run;
  bool rank_order = true;  // sums in rank order; else in any
  int devices = 0;         // GPUs that it needs; skipped where there are fewer
};

inline std::ostream& operator<<(std::ostream& out, const GroupImplementation& group) {
  return out << group.name << " of " << group.size;
}

class GroupConformance : public testing::TestWithParam<GroupImplementation> {
 protected:
  void SetUp() override {
    if (cuda_device_count() < GetParam().devices)
      GTEST_SKIP() << GetParam().devices << " GPUs are needed, there are " << cuda_device_count();
  }
  void run(const std::function<void(Group&, Stream&)>& body) { GetParam().run(GetParam().size, body); }
  int64 size() const { return GetParam().size; }
  // Whether `got` is the sum `want`: in every bit where sums are taken in rank order.
  bool is_sum(float got, float want) const {
    return got == want || (!GetParam().rank_order && std::abs(got - want) <= 1e-4F * static_cast<float>(size()));
  }
};

// One division, so that no compiler fuses it otherwise in one place than in another.
inline float test_value(int64 rank, int64 i) { return static_cast<float>((rank * 7919 + i * 31) % 1000 - 400) / 7; }
inline std::vector<float> test_values(int64 rank, int64 count) {
  std::vector<float> values;
  for (int64 i = 0; i < count; ++i) values.push_back(test_value(rank, i));
  return values;
}
// In rank order, as the contract says: comparable bit by bit.
inline float test_sum(int64 size, int64 i) {
  float sum = test_value(0, i);
  for (int64 r = 1; r < size; ++r) sum += test_value(r, i);
  return sum;
}

}  // namespace megatoken
