// The reason a family of groups stops with: shared by a group and all that were split from it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"

namespace megatoken {

// Thrown by operations of a group that was aborted, with the first reason. A consequence, never the culprit's own
// error.
class AbortedError : public TrainError {
 public:
  explicit AbortedError(const std::string& reason) : TrainError(reason) {}
};

class AbortState {
 public:
  // The first reason wins; wakes all listeners.
  void abort(const std::string& reason);
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }
  // Throws AbortedError when aborted.
  void check() const;
  // Called (from the aborting thread) once it is aborted; at once if it already is. Dropped when `owner` is gone.
  void listen(std::weak_ptr<void> owner, std::function<void()> wake);

 private:
  struct Listener {
    std::weak_ptr<void> owner;
    std::function<void()> wake;
  };
  std::atomic<bool> aborted_ = false;
  mutable std::mutex mutex_;
  std::string reason_;
  std::vector<Listener> listeners_;
};

}  // namespace megatoken
