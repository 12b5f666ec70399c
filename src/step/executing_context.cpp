#include "step/executing_context.h"

#include <algorithm>
#include <deque>

#include "device/profiler_range.h"
#include "step/bookkeeping.h"
#include "step/placement.h"

namespace megatoken {

struct ExecutingContext::Run {
  Run(StepBook& book, std::shared_ptr<const Plan> plan) : placement(book, std::move(plan)) {}

  struct Reached {
    int64 seq;
    Event event;
  };
  Placement placement;
  // Events of asynchronous ops that compute has not waited for.
  std::array<std::deque<Reached>, kNumStreams> events;
  // compute's position as of its clock `compute_clock`.
  Event compute_event;
  Clock compute_clock{};
  TimelineRecorder recorder;
};

ExecutingContext::ExecutingContext(Device& device, Arena& arena, std::shared_ptr<const Plan> plan)
    : device_(device), arena_(arena), run_(std::make_unique<Run>(*book_, std::move(plan))) {
  check_arena(run_->placement.plan());
  streams_[0] = device_.create_stream(StreamMode::in_order_inline);
  for (const StreamId id : kAsyncStreams) streams_[index_of(id)] = device_.create_stream(StreamMode::own_thread);
  run_->compute_clock.fill(-1);
}

ExecutingContext::~ExecutingContext() { abandon(); }

void ExecutingContext::check_arena(const Plan& plan) const {
  for (const Place place : {Place::device, Place::host})
    if (plan.arena_bytes(place) > arena_.bytes(place))
      throw FitError("the plan needs {} bytes of {} memory, the arena has {}", plan.arena_bytes(place), name_of(place),
                     arena_.bytes(place));
}

void ExecutingContext::use_plan(std::shared_ptr<const Plan> plan) {
  check(plan != nullptr, "a context needs a plan");
  check_arena(*plan);
  run_->placement.use_plan(std::move(plan));
}

const Plan& ExecutingContext::plan() const { return run_->placement.plan(); }

Stream& ExecutingContext::stream(StreamId id) { return *streams_[index_of(id)]; }

std::byte* ExecutingContext::begin_lifetime(LiveBuffer& buffer) {
  run_->placement.begin(buffer);
  if (record_) run_->recorder.begin_buffer(buffer.id);
  return arena_.data(buffer.place) + buffer.offset;
}

void ExecutingContext::end_lifetime(LiveBuffer& buffer) {
  run_->placement.end(buffer);
  if (record_) run_->recorder.end_buffer(buffer.id, buffer.name(), buffer.place, buffer.bytes, buffer.offset);
  if (!arena_.poisons() || buffer.bytes == 0) return;
  // compute has joined every access, so its stream is where the bytes are free. An op of compute like any other: what
  // comes later on other streams must wait for it.
  book_->issue_compute();
  streams_[0]->submit([this, place = buffer.place, offset = buffer.offset, bytes = buffer.bytes](Stream& stream) {
    arena_.poison(stream, place, offset, bytes);
  });
}

std::byte* ExecutingContext::begin_external(LiveBuffer& external, std::byte* data) {
  check(data != nullptr || external.bytes == 0, "external '{}' has no memory", external.external);
  return data;
}

void ExecutingContext::fail(std::exception_ptr error) {
  const std::lock_guard lock(error_mutex_);
  if (!first_error_) first_error_ = std::move(error);
  failed_.store(true, std::memory_order_release);
}

void ExecutingContext::tell_iterations() {
  const auto& frames = book_->frames;
  for (std::size_t depth = 1; depth < frames.size() && depth <= told_.size(); ++depth) {
    if (told_[depth - 1] == frames[depth].serial) continue;
    told_[depth - 1] = frames[depth].serial;
    watcher_(frames[depth].node->path);
  }
}

void ExecutingContext::perform(const Operation& operation, Kernel kernel) {
  Run& run = *run_;
  if (watcher_ && operation.stream == StreamId::compute) tell_iterations();
  if (record_ && !run.recorder.begun()) run.recorder.begin(streams_[0]->mark_time());
  const std::size_t s = index_of(operation.stream);
  Stream& stream = *streams_[s];
  if (operation.stream != StreamId::compute) {
    if (operation.waits_for_compute) {
      if (run.compute_clock != book_->clocks[0]) {
        run.compute_event = streams_[0]->record();
        run.compute_clock = book_->clocks[0];
      }
      stream.wait(run.compute_event);
    }
    for (const Ticket& ticket : operation.after) {
      auto& events = run.events[index_of(ticket.stream)];
      stream.wait(events[static_cast<std::size_t>(ticket.seq - events.front().seq)].event);
    }
  }
  const ProfilerRange range(operation.name);
  const auto run_kernel = [this](Stream& on, const Kernel& work) {
    try {
      work(on);
    } catch (...) {
      fail(std::current_exception());
    }
  };
  if (record_) {
    stream.submit([this, run_kernel, id = operation.stream, kernel = std::move(kernel), name = std::string(operation.name),
                   cost = *operation.cost](Stream& on) mutable {
      if (failed_.load(std::memory_order_acquire)) return;
      auto begin = on.mark_time();
      run_kernel(on, kernel);
      run_->recorder.add(id, std::move(name), false, cost, std::move(begin), on.mark_time());
    });
  } else {
    stream.submit([this, run_kernel, kernel = std::move(kernel)](Stream& on) {
      if (!failed_.load(std::memory_order_acquire)) run_kernel(on, kernel);
    });
  }
  if (operation.stream != StreamId::compute) run.events[s].push_back({operation.seq, stream.record()});
}

void ExecutingContext::join(const Ticket& ticket, std::string_view why) {
  Run& run = *run_;
  auto& events = run.events[index_of(ticket.stream)];
  const auto at = static_cast<std::size_t>(ticket.seq - events.front().seq);
  auto begin = record_ ? streams_[0]->mark_time() : nullptr;
  streams_[0]->wait(events[at].event);
  if (record_)
    run.recorder.add(StreamId::compute, fmt::format("wait: {}", why), true, {}, std::move(begin),
                     streams_[0]->mark_time());
  // compute's clock is about to cover the ticket, and what it covers is never waited for again.
  events.erase(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(at) + 1);
}

void ExecutingContext::drain() {
  std::exception_ptr stream_error;
  for (std::size_t s = streams_.size(); s-- > 0;) {
    if (streams_[s] == nullptr) continue;
    try {
      streams_[s]->synchronize();
    } catch (...) {
      if (!stream_error) stream_error = std::current_exception();
    }
  }
  const std::lock_guard lock(error_mutex_);
  if (first_error_) std::rethrow_exception(first_error_);
  if (stream_error) std::rethrow_exception(stream_error);
}

void ExecutingContext::forget() {
  Run& run = *run_;
  run.placement.clear();
  for (auto& events : run.events) events.clear();
  run.compute_event = Event();
  run.compute_clock.fill(-1);
  timeline_ = run.recorder.take();
  told_.fill(0);
  const std::lock_guard lock(error_mutex_);
  first_error_ = nullptr;
  failed_.store(false, std::memory_order_release);
}

}  // namespace megatoken
