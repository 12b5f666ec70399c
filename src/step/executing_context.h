// Runs a step: every buffer at its site's planned offset in the arena, compute work in program order, asynchronous work
// on three more streams. The same code for every device.
//
// Errors: once a kernel has thrown, no further kernel of the step runs on any stream, while the program goes on to its
// end; finish() joins all streams and rethrows that first error. The next step starts clean.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "memory/arena.h"
#include "plan/plan.h"
#include "step/step_context.h"
#include "step/timeline.h"

namespace megatoken {

class ExecutingContext final : public StepContext {
 public:
  // device and arena must outlive the context. FitError when the arena is smaller than the plan.
  ExecutingContext(Device& device, Arena& arena, std::shared_ptr<const Plan> plan);
  // Joins the streams.
  ~ExecutingContext() override;
  bool executing() const override { return true; }

  // Between steps: the plan of the next one.
  void use_plan(std::shared_ptr<const Plan> plan);
  const Plan& plan() const;

  Stream& stream(StreamId id);
  // Between steps: whether the next ones keep when each op ran on its stream. Costs some microseconds an op.
  void record_timeline(bool record) { record_ = record; }
  // Called on the calling thread whenever compute comes to a new iteration of an outermost loop or of one right inside it,
  // with the loop's path ("layer", "layer backward/token tile"). On the CPU that iteration then runs; on CUDA it is queued.
  void watch(std::function<void(std::string_view loop)> watcher) { watcher_ = std::move(watcher); }
  // Of the last finished step; empty unless recorded.
  const Timeline& timeline() const { return timeline_; }

 private:
  std::byte* begin_lifetime(LiveBuffer& buffer) override;
  void end_lifetime(LiveBuffer& buffer) override;
  std::byte* begin_external(LiveBuffer& external, std::byte* data) override;
  void perform(const Operation& operation, Kernel kernel) override;
  void join(const Ticket& ticket, std::string_view why) override;
  void drain() override;
  void forget() override;

  struct Run;
  void tell_iterations();
  void fail(std::exception_ptr error);
  void check_arena(const Plan& plan) const;

  Device& device_;
  Arena& arena_;
  bool record_ = false;
  std::function<void(std::string_view)> watcher_;
  std::array<int64, 2> told_{};  // serial numbers of the iterations that the watcher knows of, by depth
  std::array<std::unique_ptr<Stream>, kNumStreams> streams_;
  std::unique_ptr<Run> run_;
  std::atomic<bool> failed_ = false;
  std::mutex error_mutex_;
  std::exception_ptr first_error_;
  Timeline timeline_;
};

}  // namespace megatoken
