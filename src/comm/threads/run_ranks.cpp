#include "comm/run_ranks.h"

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/abort.h"

namespace megatoken {
namespace {

// The first exception that is no mere consequence of an abort; if there is none, the first.
class Culprit {
 public:
  void add(std::exception_ptr error, bool consequence) {
    const std::lock_guard lock(mutex_);
    if (error_ && (!consequence_ || consequence)) return;
    error_ = std::move(error);
    consequence_ = consequence;
  }
  void rethrow() {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  bool consequence_ = false;
};

void run_rank(std::shared_ptr<Group> world, const std::function<void(Group&)>& body, Culprit& culprit) {
  try {
    body(*world);
  } catch (const AbortedError&) {
    culprit.add(std::current_exception(), true);
  } catch (const std::exception& error) {
    culprit.add(std::current_exception(), false);
    world->abort(error.what());
  } catch (...) {
    culprit.add(std::current_exception(), false);
    world->abort(fmt::format("rank {} failed", world->rank()));
  }
}

}  // namespace

void run_ranks(int64 size, const std::function<void(Group& world)>& body) {
  if (size == 1) return body(*create_self_group());
  Culprit culprit;
  std::vector<std::shared_ptr<Group>> groups = create_thread_groups(size);
  std::vector<std::thread> threads;
  try {
    for (auto& group : groups) threads.emplace_back(run_rank, std::move(group), std::cref(body), std::ref(culprit));
  } catch (...) {  // no more threads to be had
    culprit.add(std::current_exception(), false);
    for (auto& group : groups)
      if (group) group->abort("no thread for every rank");
  }
  groups.clear();
  for (std::thread& thread : threads) thread.join();
  culprit.rethrow();
}

}  // namespace megatoken
