#include "memory/pinned_pool.h"

#include "base/error.h"
#include "plan/counted_step.h"

namespace megatoken {

PinnedPool::PinnedPool(Device& device, int64 bytes) : bytes_(bytes) {
  check(bytes >= 0, "a pinned pool of {} bytes", bytes);
  memory_ = std::async(std::launch::async, [&device, bytes] {
              return std::make_shared<Memory>(bytes > 0 ? device.allocate_host(bytes, "pinned pool") : Memory());
            }).share();
}

PinnedPool::~PinnedPool() { memory_.wait(); }

Memory PinnedPool::take(int64 bytes, const std::string& what) {
  check(bytes >= 0, "{} of {} bytes", what, bytes);
  const std::shared_ptr<Memory> memory = memory_.get();
  const int64 aligned = align_up(bytes);
  const std::lock_guard lock(mutex_);
  if (aligned > bytes_ - taken_)
    throw FitError("{} needs {} bytes of pinned host memory, {} of {} are left", what, aligned, bytes_ - taken_,
                   bytes_);
  std::byte* begin = memory->data() + taken_;
  taken_ += aligned;
  return Memory(begin, bytes, [memory](void*) {});
}

int64 PinnedPool::taken() const {
  const std::lock_guard lock(mutex_);
  return taken_;
}

}  // namespace megatoken
