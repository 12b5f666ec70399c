#include "train/step_runner.h"

#include "device/profiler_range.h"
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
  using Clock = std::chrono::steady_clock;
  const double begin = std::chrono::duration<double, std::nano>(Clock::now() - recording_since_).count();
  const ProfilerRange range(key);
  try {
    on(context_);
  } catch (...) {
    context_.abandon();
    throw;
  }
  if (!recorded_) return;
  for (TimelineEntry entry : context_.timeline().entries) {
    entry.begin_ns += begin;
    entry.end_ns += begin;
    recorded_->entries.push_back(std::move(entry));
  }
  for (TimelineBuffer buffer : context_.timeline().buffers) {
    buffer.begin_ns += begin;
    buffer.end_ns += begin;
    recorded_->buffers.push_back(std::move(buffer));
  }
}

void StepRunner::record_timeline() {
  recorded_.emplace();
  recording_since_ = std::chrono::steady_clock::now();
  context_.record_timeline(true);
}

Timeline StepRunner::take_timeline() {
  context_.record_timeline(false);
  Timeline taken = recorded_ ? std::move(*recorded_) : Timeline();
  recorded_.reset();
  return taken;
}

}  // namespace megatoken
