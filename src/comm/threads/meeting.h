// Where the ranks of a thread group meet: each posts what it wants and the pointers it offers, all see all posts, each
// does its part of the work, and nobody leaves before all are done.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "comm/abort.h"
#include "device/device.h"

namespace megatoken {

// What a rank posts. Operation, size and argument must be the same on every rank.
struct Post {
  const char* operation = "";
  int64 size = 0;      // bytes, elements or values
  int64 argument = 0;  // root, reduction
  const void* in = nullptr;
  void* out = nullptr;
  int64 peer = 0;  // send_receive: who it sends to
  Event ready;     // of an operation that is only queued: when the values are there
};

class Meeting : public std::enable_shared_from_this<Meeting> {
 public:
  Meeting(int64 size, std::shared_ptr<AbortState> abort, std::chrono::milliseconds timeout);
  // Wakes the waiting when the group is aborted; called once after construction.
  void listen();

  // Waits for every rank's post, runs `work` on them, waits for every rank's work.
  // AbortedError with the first reason when the group is, or while waiting becomes, aborted. Posts that differ: every
  // rank gets the same InternalError. A rank that has ended or does not come within the timeout aborts the group.
  void meet(int64 rank, const Post& post, const std::function<void(const std::vector<Post>&)>& work);
  // The rank will not come again.
  void leave(int64 rank);

 private:
  void enter(std::unique_lock<std::mutex>& lock, int64 rank, const char* operation);
  void leave_meeting(std::unique_lock<std::mutex>& lock);
  std::string missing(const char* operation) const;
  void compare_posts() const;
  [[noreturn]] void fail(std::unique_lock<std::mutex>& lock, const std::string& reason);

  const std::shared_ptr<AbortState> abort_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Post> posts_;
  std::vector<bool> arrived_;
  std::vector<bool> inside_;  // between a rank's entry and its exit
  std::vector<bool> left_;
  int64 num_arrived_ = 0;
  int64 num_working_ = 0;  // have entered the meeting at hand and not done their work
  int64 meeting_ = 0;      // meetings begun
};

}  // namespace megatoken
