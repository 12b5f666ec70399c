#include "device/cpu/cpu_stream.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "base/error.h"

namespace megatoken {
namespace {

class CpuEvent final : public Event::State {
 public:
  void reach() {
    {
      const std::lock_guard lock(mutex_);
      reached_ = true;
    }
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return reached_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
};

class CpuTimeMark final : public TimeMark {
 public:
  double ns_since(const TimeMark& earlier) const override {
    const auto* other = dynamic_cast<const CpuTimeMark*>(&earlier);
    check(other != nullptr, "marks of different devices have no distance");
    return std::chrono::duration<double, std::nano>(time_ - other->time_).count();
  }

 private:
  const std::chrono::steady_clock::time_point time_ = std::chrono::steady_clock::now();
};

CpuEvent& cpu_event(const Event& event) {
  auto* state = dynamic_cast<CpuEvent*>(event.state());
  check(state != nullptr, "a CPU stream can wait for CPU events only");
  return *state;
}

}  // namespace

void CpuStream::copy(void* to, const void* from, int64 bytes) {
  check(bytes >= 0, "copy of {} bytes", bytes);
  if (bytes > 0) std::memmove(to, from, static_cast<std::size_t>(bytes));
}

void CpuStream::fill_zero(void* to, int64 bytes) {
  check(bytes >= 0, "fill of {} bytes", bytes);
  if (bytes > 0) std::memset(to, 0, static_cast<std::size_t>(bytes));
}

void CpuStream::sum(std::span<const float* const> terms, float* out, int64 count) {
  check(!terms.empty() && count >= 0, "sum of {} terms of {} elements", terms.size(), count);
  std::array<float, 2048> block;  // complete before it is stored: out may be a term
  for (int64 begin = 0; begin < count; begin += static_cast<int64>(block.size())) {
    const int64 n = std::min(count - begin, static_cast<int64>(block.size()));
    std::copy_n(terms[0] + begin, n, block.begin());
    for (const float* term : terms.subspan(1))
      for (int64 i = 0; i < n; ++i) block[static_cast<std::size_t>(i)] += term[begin + i];
    std::copy_n(block.begin(), n, out + begin);
  }
}

std::shared_ptr<const TimeMark> CpuStream::mark_time() { return std::make_shared<CpuTimeMark>(); }

int cpu_threads(const Stream& stream) {
  const auto* cpu = dynamic_cast<const CpuStream*>(&stream);
  check(cpu != nullptr, "a CPU op was called on a stream of another device");
  return cpu->threads();
}

void InlineStream::submit(std::function<void(Stream&)> task) {
  if (error_) return;
  try {
    task(*this);
  } catch (...) {
    error_ = std::current_exception();
  }
}

void InlineStream::wait(const Event& event) {
  if (event.state() != nullptr) cpu_event(event).wait();
}

void InlineStream::synchronize() {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

WorkerStream::WorkerStream() : CpuStream(1), thread_([this] { work(); }) {}

WorkerStream::~WorkerStream() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void WorkerStream::push(Item item) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(item));
  }
  changed_.notify_one();
}

void WorkerStream::submit(std::function<void(Stream&)> task) { push({std::move(task), false}); }

Event WorkerStream::record() {
  auto state = std::make_shared<CpuEvent>();
  push({[state](Stream&) { state->reach(); }, true});
  return Event(std::move(state));
}

void WorkerStream::wait(const Event& event) {
  if (event.state() == nullptr) return;
  CpuEvent& state = cpu_event(event);
  push({[event, &state](Stream&) { state.wait(); }, true});  // event keeps the state alive
}

void WorkerStream::synchronize() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return queue_.empty() && !running_; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void WorkerStream::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Item item = std::move(queue_.front());
    queue_.pop_front();
    const bool skip = error_ != nullptr && !item.marker;
    running_ = true;
    lock.unlock();
    std::exception_ptr error;
    if (!skip) {
      try {
        item.run(*this);
      } catch (...) {
        error = std::current_exception();
      }
    }
    item.run = nullptr;  // what the task holds is released here, before synchronize() returns
    lock.lock();
    running_ = false;
    if (error && !error_) error_ = std::move(error);
    if (queue_.empty()) idle_.notify_all();
  }
}

}  // namespace megatoken
