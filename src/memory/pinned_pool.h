// One piece of host memory per process that asynchronous copies reach at full speed, made at start behind the loading
// of the model (pinning takes seconds per 100 GiB) and cut into the host arenas of the ranks.
#pragma once

#include <future>
#include <memory>
#include <mutex>
#include <string>

#include "device/device.h"

namespace megatoken {

class PinnedPool {
 public:
  // Returns at once; a thread of its own allocates `bytes` by Device::allocate_host. device must outlive the pool.
  PinnedPool(Device& device, int64 bytes);
  // Waits for the allocation. Memory that was taken keeps the pool's bytes alive.
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // 256-byte aligned; contents undefined. Waits until the pool is there and rethrows its error. FitError naming `what`
  // when less is left. What was taken is not given back to the pool. Thread-safe.
  Memory take(int64 bytes, const std::string& what);
  int64 bytes() const { return bytes_; }
  int64 taken() const;

 private:
  int64 bytes_;
  std::shared_future<std::shared_ptr<Memory>> memory_;
  mutable std::mutex mutex_;
  int64 taken_ = 0;
};

}  // namespace megatoken
