// A GPU on the host, for what an order of streams may do wrong: tasks run at once on the caller's thread, what they do
// to memory is only queued, and events alone order streams. Nothing runs before somebody synchronizes a stream, and
// then the stream of the highest priority runs as far ahead as events let it: what no event orders comes out in the
// wrong order.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <set>
#include <vector>

#include "base/error.h"
#include "device/device.h"

namespace megatoken {

class SimulatedGpu {
 public:
  struct Queue {
    struct Item {
      std::function<bool()> ready;
      std::function<void()> run;
    };
    std::deque<Item> items;
    int64 priority = 0;
  };
  void add(Queue& queue) {
    const std::lock_guard lock(mutex_);
    queues_.push_back(&queue);
    std::stable_sort(queues_.begin(), queues_.end(),
                     [](const Queue* a, const Queue* b) { return a->priority < b->priority; });
  }
  void remove(Queue& queue) {
    const std::lock_guard lock(mutex_);
    std::erase(queues_, &queue);
  }
  void push(
      Queue& queue, std::function<void()> run, std::function<bool()> ready = [] { return true; }) {
    const std::lock_guard lock(mutex_);
    queue.items.push_back({std::move(ready), std::move(run)});
  }
  void run_until_empty(const Queue& queue) {
    const std::lock_guard lock(mutex_);
    while (!queue.items.empty()) {
      const auto next = std::find_if(queues_.begin(), queues_.end(), [](const Queue* candidate) {
        return !candidate->items.empty() && candidate->items.front().ready();
      });
      check(next != queues_.end(), "streams wait in a circle");
      auto run = std::move((*next)->items.front().run);
      (*next)->items.pop_front();
      run();
    }
  }

 private:
  std::mutex mutex_;
  std::vector<Queue*> queues_;
};

class SimulatedStream final : public Stream {
 public:
  SimulatedStream(SimulatedGpu& gpu, int64 priority) : gpu_(gpu) {
    queue_.priority = priority;
    gpu_.add(queue_);
  }
  ~SimulatedStream() override {
    gpu_.run_until_empty(queue_);
    gpu_.remove(queue_);
  }
  SimulatedStream(const SimulatedStream&) = delete;
  SimulatedStream& operator=(const SimulatedStream&) = delete;

  void submit(std::function<void(Stream&)> task) override {
    if (error_) return;
    try {
      task(*this);
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  Event record() override {
    auto state = std::make_shared<Reached>();
    gpu_.push(queue_, [state] { state->value = true; });
    return Event(state);
  }
  void wait(const Event& event) override {
    if (event.state() == nullptr) return;
    auto* const state = dynamic_cast<Reached*>(event.state());
    check(state != nullptr, "an event of another device");
    gpu_.push(
        queue_, [event] {}, [event, state] { return state->value; });
  }
  void synchronize() override {
    gpu_.run_until_empty(queue_);
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }
  void copy(void* to, const void* from, int64 bytes) override {
    gpu_.push(queue_, [=] { std::memmove(to, from, static_cast<std::size_t>(bytes)); });
  }
  void fill_zero(void* to, int64 bytes) override {
    gpu_.push(queue_, [=] { std::memset(to, 0, static_cast<std::size_t>(bytes)); });
  }
  void sum(std::span<const float* const> terms, float* out, int64 count) override {
    gpu_.push(queue_, [=, all = std::vector<const float*>(terms.begin(), terms.end())] {
      for (int64 i = 0; i < count; ++i) {
        float value = all[0][i];
        for (std::size_t t = 1; t < all.size(); ++t) value += all[t][i];
        out[i] = value;
      }
    });
  }
  std::shared_ptr<const TimeMark> mark_time() override { throw InternalError("no clock"); }
  DeviceKind kind() const override { return DeviceKind::cuda; }

 private:
  struct Reached final : Event::State {
    bool value = false;
  };
  SimulatedGpu& gpu_;
  SimulatedGpu::Queue queue_;
  std::exception_ptr error_;
};

// One rank's handle. Its streams have priorities first_priority, first_priority + 1, ... modulo num_priorities.
class SimulatedDevice final : public Device {
 public:
  SimulatedDevice(SimulatedGpu& gpu, int64 first_priority, int64 num_priorities)
      : gpu_(gpu), priority_(first_priority), num_priorities_(num_priorities) {}
  DeviceKind kind() const override { return DeviceKind::cuda; }
  std::string name() const override { return "simulated"; }
  int index() const override { return 0; }
  std::string hardware_id() const override { return "simulated"; }
  Memory allocate(int64 bytes, const std::string& what) override { return host_->allocate(bytes, what); }
  Memory allocate_host(int64 bytes, const std::string& what) override { return host_->allocate(bytes, what); }
  std::unique_ptr<Stream> create_stream(StreamMode /*mode*/) override {
    return std::make_unique<SimulatedStream>(gpu_, priority_++ % num_priorities_);
  }

 private:
  SimulatedGpu& gpu_;
  int64 priority_, num_priorities_;
  std::unique_ptr<Device> host_ = create_cpu_device(1);
};

}  // namespace megatoken
