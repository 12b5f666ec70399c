// The streams of the CPU device. Ops ask a stream for its thread count through cpu_threads().
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "device/device.h"

namespace megatoken {

// What the two stream kinds share: memory is reached by plain copies, tasks after a failure are skipped.
class CpuStream : public Stream {
 public:
  explicit CpuStream(int threads) : threads_(threads) {}
  void copy(void* to, const void* from, int64 bytes) final;
  void fill_zero(void* to, int64 bytes) final;
  void sum(std::span<const float* const> terms, float* out, int64 count) final;
  std::shared_ptr<const TimeMark> mark_time() final;
  DeviceKind kind() const final { return DeviceKind::cpu; }
  // OpenMP threads an op called in a task of this stream may use.
  int threads() const { return threads_; }

 private:
  int threads_;
};

// Runs each task on the caller's thread before submit() returns, so its events have always been reached.
class InlineStream final : public CpuStream {
 public:
  using CpuStream::CpuStream;
  void submit(std::function<void(Stream&)> task) override;
  Event record() override { return Event(); }
  void wait(const Event& event) override;
  void synchronize() override;

 private:
  std::exception_ptr error_;
};

// Runs tasks in order on one thread of its own, which sleeps while there is nothing to do. The destructor waits for the
// queued work; an error nobody has synchronized for is dropped then.
class WorkerStream final : public CpuStream {
 public:
  WorkerStream();
  ~WorkerStream() override;
  WorkerStream(const WorkerStream&) = delete;
  WorkerStream& operator=(const WorkerStream&) = delete;
  void submit(std::function<void(Stream&)> task) override;
  Event record() override;
  void wait(const Event& event) override;
  void synchronize() override;

 private:
  // A task is skipped after a failure; a marker (events) always runs.
  struct Item {
    std::function<void(Stream&)> run;
    bool marker;
  };
  void push(Item item);
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;  // for the worker: something was queued, or stop
  std::condition_variable idle_;     // for synchronize: the queue is empty and nothing runs
  std::deque<Item> queue_;
  std::exception_ptr error_;
  bool running_ = false;
  bool stop_ = false;
  std::thread thread_;
};

// The thread count of a stream of the CPU device; InternalError for any other stream.
int cpu_threads(const Stream& stream);

}  // namespace megatoken
