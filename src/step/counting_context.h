// Runs a step without device or data and yields its plan: sites with lifetimes, costs, joins (plan/counted_step.h).
#pragma once

#include <functional>

#include "plan/counted_step.h"
#include "step/step_context.h"

namespace megatoken {

class CountingContext final : public StepContext {
 public:
  // collapse: visit the edges and one period of each loop that allows it, and multiply.
  explicit CountingContext(bool collapse = true);
  ~CountingContext() override;
  bool executing() const override { return false; }

  // What the step since construction or the last take() held; after finish().
  CountedStep take();

 private:
  bool collapses() const override { return collapse_; }
  std::byte* begin_lifetime(LiveBuffer& buffer) override;
  void end_lifetime(LiveBuffer& buffer) override;
  std::byte* begin_external(LiveBuffer& external, std::byte* data) override;
  void perform(const Operation& operation, Kernel kernel) override;
  void join(const Ticket& ticket, std::string_view why) override;
  void begin_period(int64 repeats) override;
  void end_period(int64 repeats) override;
  void drain() override {}
  void forget() override;

  struct Counts;
  bool collapse_;
  std::unique_ptr<Counts> counts_;
};

// Counts the step and finishes it.
CountedStep count_step(const std::function<void(StepContext&)>& step, bool collapse = true);

}  // namespace megatoken
