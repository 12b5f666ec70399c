// A way to run a function as every rank of a group, to instantiate the suite of group_conformance.h with. That header
// itself is included by one file of a test program.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <ostream>

#include "comm/group.h"
#include "device/device.h"

namespace megatoken {

struct GroupImplementation {
  const char* name;
  int64 size;
  // Runs `body` as every rank and rethrows the culprit's exception.
  std::function<void(int64 size, const std::function<void(Group&, Stream&)>& body)> run;
};

inline std::ostream& operator<<(std::ostream& out, const GroupImplementation& group) {
  return out << group.name << " of " << group.size;
}

class GroupConformance : public testing::TestWithParam<GroupImplementation> {
 protected:
  void run(const std::function<void(Group&, Stream&)>& body) { GetParam().run(GetParam().size, body); }
  int64 size() const { return GetParam().size; }
};

}  // namespace megatoken
