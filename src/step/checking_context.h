// Runs a step over a plan without device or data and refuses, by name, the first fault it meets:
//  - a buffer that the plan does not hold, that is larger than planned, or planned over bytes that are still in use;
//  - two accesses to the same bytes, at least one of them a write, by two streams of which neither waits for the other;
//  - a read of bytes that nothing has written in the buffer's lifetime;
//  - and whatever every context refuses (two live buffers of a site, escapes, use after the end, ...).
// Loops run flat. Bytes are compared exactly: disjoint rows or columns never collide.
#pragma once

#include <functional>
#include <memory>

#include "plan/plan.h"
#include "step/step_context.h"

namespace megatoken {

class CheckingContext : public StepContext {
 public:
  explicit CheckingContext(std::shared_ptr<const Plan> plan);
  ~CheckingContext() override;
  bool executing() const override { return false; }

 private:
  std::byte* begin_lifetime(LiveBuffer& buffer) override;
  void end_lifetime(LiveBuffer& buffer) override;
  std::byte* begin_external(LiveBuffer& external, std::byte* data) override;
  void perform(const Operation& operation, Kernel kernel) override;
  void join(const Ticket& ticket, std::string_view why) override;
  void drain() override {}
  void forget() override;

  struct Shadow;
  std::unique_ptr<Shadow> shadow_;
};

// InternalError naming the fault, or nothing when the step runs on the plan without overlap or race.
void check_step(const Plan& plan, const std::function<void(StepContext&)>& step);

}  // namespace megatoken
