#include "train/step_runner.h"

#include "step/checking_context.h"
#include "step/counting_context.h"

namespace megatoken {

StepRunner::StepRunner(Device& device, const OpTable& table, const PlannedRun& run)
    : table_(table), arena_(device, run.arena), context_(device, arena_, std::make_shared<const Plan>(run.train_plan)) {}

void StepRunner::run(const std::string& key, const Plan& planned, const std::function<void(StepOps&)>& program) {
  auto& plan = plans_[key];
  const auto on = [&](StepContext& context) {
    StepOps ops(context, table_);
    program(ops);
  };
  if (plan == nullptr) {
    constexpr std::size_t kMostShapes = 1024;  // datasets of ever new lengths must not grow without bound
    const CountedStep counted = count_step(on);
    const PlaceBytes capacity{arena_.bytes(Place::device), arena_.bytes(Place::host)};
    auto made = std::make_shared<const Plan>(adapt(planned, counted, capacity));
    check_step(*made, on);
    if (plans_.size() > kMostShapes) plans_.clear();
    plans_[key] = made;
    context_.use_plan(made);
  } else {
    context_.use_plan(plan);
  }
  try {
    on(context_);
  } catch (...) {
    context_.abandon();
    throw;
  }
}

}  // namespace megatoken
