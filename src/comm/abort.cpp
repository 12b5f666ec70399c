#include "comm/abort.h"

#include <utility>

namespace megatoken {

void AbortState::abort(const std::string& reason) {
  std::vector<Listener> listeners;
  {
    const std::lock_guard lock(mutex_);
    if (aborted_.load(std::memory_order_relaxed)) return;
    reason_ = reason;
    aborted_.store(true, std::memory_order_release);
    listeners.swap(listeners_);
  }
  for (const Listener& listener : listeners)
    if (const auto alive = listener.owner.lock()) listener.wake();
}

void AbortState::check() const {
  if (!aborted()) return;
  const std::lock_guard lock(mutex_);
  throw AbortedError(reason_);
}

void AbortState::listen(std::weak_ptr<void> owner, std::function<void()> wake) {
  {
    const std::lock_guard lock(mutex_);
    if (!aborted_.load(std::memory_order_relaxed)) {
      std::erase_if(listeners_, [](const Listener& listener) { return listener.owner.expired(); });
      listeners_.push_back({std::move(owner), std::move(wake)});
      return;
    }
  }
  wake();
}

}  // namespace megatoken
