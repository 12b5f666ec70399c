// One NCCL communicator that nothing waits on for ever: its calls don't block, and a thread watches for errors of NCCL
// and for an abort of the ranks, which ends NCCL's kernels too.
#pragma once

#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "comm/group.h"

namespace megatoken {

class Communicator {
 public:
  // Collective over host, which carries NCCL's unique id. device: this rank's CUDA device.
  Communicator(std::shared_ptr<Group> host, int device);
  // Waits (at most 10 s) until the other ranks have what this one sent.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Calls `enqueue` and returns when its work is in the stream that it names. AbortedError after an abort, TrainError
  // naming `what` when NCCL fails.
  void call(const char* what, const std::function<ncclResult_t(ncclComm_t)>& enqueue);

 private:
  using Clock = std::chrono::steady_clock;
  // Shared with the listener of the abort state, which may outlive the communicator.
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    ncclComm_t comm = nullptr;  // null: never made, or aborted
    bool ending = false;
  };
  // Polls until NCCL has finished what it began; the lock is open meanwhile. False at the deadline.
  bool settle(std::unique_lock<std::mutex>& lock, ncclResult_t& result, Clock::time_point deadline) const;
  void abort_locked() const;
  void watch() const;
  [[noreturn]] void fail(const char* what, ncclResult_t result) const;
  std::string reason_of(const char* what, ncclResult_t result) const;
  // Another rank's loss shows in NCCL at once, its reason a moment later in the abort state.
  void await_reason(ncclResult_t result) const;

  const std::shared_ptr<Group> host_;
  const int device_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread watcher_;
};

}  // namespace megatoken
