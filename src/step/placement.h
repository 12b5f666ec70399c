// Where a planned context puts lifetimes: looks sites up in the plan and refuses what the plan does not hold. Knows the
// bytes in use, so that two lifetimes never share any, whatever plan and step are.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "plan/plan.h"
#include "step/bookkeeping.h"

namespace megatoken {

class Placement {
 public:
  // Sites remember where they were found: `book` must outlive the placement.
  Placement(StepBook& book, std::shared_ptr<const Plan> plan);
  void use_plan(std::shared_ptr<const Plan> plan);
  const Plan& plan() const { return *plan_; }

  // Sets buffer.offset. InternalError naming the site: not in the plan, larger than planned, or over a lifetime that
  // has not ended.
  void begin(LiveBuffer& buffer);
  void end(const LiveBuffer& buffer);
  void clear();

 private:
  struct Range {
    int64 begin;
    int64 end;
    LiveBuffer* buffer;
  };
  StepBook& book_;
  std::shared_ptr<const Plan> plan_;
  std::array<std::vector<Range>, kNumPlaces> used_;  // ascending
};

}  // namespace megatoken
