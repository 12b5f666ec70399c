#include "comm/threads/meeting.h"

#include <algorithm>
#include <string_view>

namespace megatoken {

Meeting::Meeting(int64 size, std::shared_ptr<AbortState> abort, std::chrono::milliseconds timeout)
    : abort_(std::move(abort)),
      timeout_(timeout),
      posts_(static_cast<std::size_t>(size)),
      arrived_(static_cast<std::size_t>(size)),
      inside_(static_cast<std::size_t>(size)),
      left_(static_cast<std::size_t>(size)) {}

void Meeting::listen() {
  abort_->listen(weak_from_this(), [this] {
    { const std::lock_guard lock(mutex_); }  // a rank between its check and its wait must not miss it
    changed_.notify_all();
  });
}

void Meeting::fail(std::unique_lock<std::mutex>& lock, const std::string& reason) {
  lock.unlock();  // abort() takes it to wake the others
  abort_->abort(reason);
  abort_->check();
  throw AbortedError(reason);
}

std::string Meeting::missing(const char* operation) const {
  std::string ranks;
  for (std::size_t r = 0; r < arrived_.size(); ++r)
    if (!arrived_[r]) ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", r);
  return fmt::format("rank {} did not come to {}", ranks, operation);
}

void Meeting::enter(std::unique_lock<std::mutex>& lock, int64 rank, const char* operation) {
  const auto r = static_cast<std::size_t>(rank);
  const auto size = static_cast<int64>(arrived_.size());
  const int64 meeting = meeting_;
  arrived_[r] = true;
  if (++num_arrived_ == size && !abort_->aborted()) {
    std::fill(arrived_.begin(), arrived_.end(), false);
    num_arrived_ = 0;
    num_working_ = size;
    ++meeting_;
    changed_.notify_all();
    return;
  }
  const auto withdraw = [&] {  // whoever comes later must not meet a rank that is gone
    arrived_[r] = false;
    --num_arrived_;
  };
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  while (meeting_ == meeting) {
    std::string reason;
    if (abort_->aborted()) {
      withdraw();
      lock.unlock();
      abort_->check();
    }
    for (std::size_t other = 0; other < left_.size(); ++other)
      if (left_[other] && !arrived_[other])
        reason = fmt::format("rank {} has ended while others wait for it in {}", other, operation);
    if (reason.empty() && changed_.wait_until(lock, deadline) == std::cv_status::timeout && meeting_ == meeting)
      reason = fmt::format("{} within {} s", missing(operation), static_cast<double>(timeout_.count()) / 1000);
    if (reason.empty()) continue;
    withdraw();
    fail(lock, reason);
  }
}

void Meeting::leave_meeting(std::unique_lock<std::mutex>& lock) {
  // Every rank has entered and its work ends by itself: no abort may let a rank go while others read its memory.
  if (--num_working_ == 0) changed_.notify_all();
  changed_.wait(lock, [&] { return num_working_ == 0; });
}

void Meeting::compare_posts() const {
  const Post& first = posts_.front();
  for (std::size_t r = 1; r < posts_.size(); ++r) {
    const Post& post = posts_[r];
    check(std::string_view(post.operation) == first.operation && post.size == first.size &&
              post.argument == first.argument,
          "rank 0 calls {} (size {}, argument {}), rank {} calls {} (size {}, argument {})", first.operation,
          first.size, first.argument, r, post.operation, post.size, post.argument);
  }
}

void Meeting::meet(int64 rank, const Post& post, const std::function<void(const std::vector<Post>&)>& work) {
  const auto r = static_cast<std::size_t>(rank);
  std::unique_lock lock(mutex_);
  abort_->check();
  if (inside_[r]) fail(lock, fmt::format("rank {} calls {} on two threads at once", rank, post.operation));
  struct Inside {
    std::unique_lock<std::mutex>& lock;
    std::vector<bool>::reference flag;
    ~Inside() {
      if (!lock.owns_lock()) lock.lock();
      flag = false;
    }
  } const inside{lock, inside_[r]};
  inside_[r] = true;
  posts_[r] = post;
  enter(lock, rank, post.operation);
  lock.unlock();
  std::exception_ptr error;
  try {
    compare_posts();
    work(posts_);  // nobody posts again before all have left the meeting
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  leave_meeting(lock);
  if (error) std::rethrow_exception(error);
}

void Meeting::leave(int64 rank) {
  {
    const std::lock_guard lock(mutex_);
    left_[static_cast<std::size_t>(rank)] = true;
  }
  changed_.notify_all();
}

}  // namespace megatoken
