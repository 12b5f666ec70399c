// Devices, streams, events and memory. The CPU device is always there; the CUDA device is linked in or is a small file
// that says it is absent.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/dtype.h"

namespace megatoken {

enum class DeviceKind { cpu, cuda };

// A point in a stream's work. Copyable, cheap; default-constructed: already reached.
class Event {
 public:
  class State {
   public:
    virtual ~State() = default;
  };
  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  State* state() const { return state_.get(); }

 private:
  std::shared_ptr<State> state_;
};

// A point in a stream's work whose time can be told once it has been reached.
class TimeMark {
 public:
  virtual ~TimeMark() = default;
  // Nanoseconds from `earlier`, a mark of any stream of the same device, to this one; negative when it came first. Both
  // must have been reached. CUDA: a float of milliseconds, so about 1e-7 of the distance.
  virtual double ns_since(const TimeMark& earlier) const = 0;
};

// Work in order. All members are called from the rank's own thread only.
class Stream {
 public:
  virtual ~Stream() = default;
  // Queues a task. CPU compute stream: runs it before returning. CPU asynchronous stream: runs it later on the stream's
  // own thread. CUDA: runs it before returning, on the calling thread; the task enqueues work on this stream.
  // After a task has thrown, later tasks are skipped until synchronize() has rethrown the first error.
  virtual void submit(std::function<void(Stream&)> task) = 0;
  virtual Event record() = 0;
  // Later tasks of this stream start after the event. Does not block the caller (the CPU compute stream, which has no
  // queue, blocks).
  virtual void wait(const Event& event) = 0;
  // Blocks until all queued work is done; rethrows the first error of a task and clears it.
  virtual void synchronize() = 0;
  // Copies between any two places this device can reach; called inside a task, ordered with its other work.
  virtual void copy(void* to, const void* from, int64 bytes) = 0;
  virtual void fill_zero(void* to, int64 bytes) = 0;
  // out[i] = terms[0][i] + terms[1][i] + ..., added in this order in float32, so the same bits on every device. `out`
  // may be one of the terms; CUDA: at most kMaxTerms of them. Called and ordered as copy.
  static constexpr int64 kMaxTerms = 256;
  virtual void sum(std::span<const float* const> terms, float* out, int64 count) = 0;
  // The moment at which what was queued so far is done. On the CPU: now, so call it inside a task.
  virtual std::shared_ptr<const TimeMark> mark_time() = 0;
  virtual DeviceKind kind() const = 0;
};

// Owned memory, freed at destruction.
class Memory {
 public:
  Memory() = default;
  Memory(void* data, int64 bytes, std::function<void(void*)> release)
      : data_(data), bytes_(bytes), release_(std::move(release)) {}
  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept {
    if (this != &other) {
      reset();
      data_ = std::exchange(other.data_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
      release_ = std::move(other.release_);
    }
    return *this;
  }
  ~Memory() { reset(); }
  void reset() {
    if (data_ != nullptr && release_) release_(data_);
    data_ = nullptr;
    bytes_ = 0;
  }
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  int64 bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64 bytes_ = 0;
  std::function<void(void*)> release_;
};

// How a stream of the CPU device runs its tasks; CUDA devices ignore it.
enum class StreamMode { in_order_inline, own_thread };

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual std::string name() const = 0;
  // Its place among this process' devices of its kind.
  virtual int index() const = 0;
  // Different for any two pieces of hardware, also of different hosts; the CPU device: empty.
  virtual std::string hardware_id() const = 0;
  // Device memory, 256-byte aligned, contents undefined. FitError naming `what` when there is not enough.
  virtual Memory allocate(int64 bytes, const std::string& what) = 0;
  // Host memory that asynchronous copies reach at full speed (pinned for CUDA); contents undefined.
  virtual Memory allocate_host(int64 bytes, const std::string& what) = 0;
  virtual std::unique_ptr<Stream> create_stream(StreamMode mode) = 0;
};

// threads: OpenMP threads each op may use on the compute stream's (calling) thread.
std::unique_ptr<Device> create_cpu_device(int threads);
// The index-th CUDA device; FitError saying what is missing when there is none or the program was built without CUDA.
std::unique_ptr<Device> create_cuda_device(int index);
// 0 when the program was built without CUDA, or no driver or no device is there. Never throws.
int cuda_device_count();
// Bytes that this process can come to use of a CUDA device: what is free now, and what its own context takes (which this
// call makes). 0 for a device that is not there.
int64 cuda_usable_bytes(int index);

}  // namespace megatoken
