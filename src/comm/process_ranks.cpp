#include "comm/process_ranks.h"

#include <mutex>
#include <new>
#include <thread>

#include "comm/abort.h"

namespace megatoken {
namespace {

// Runs f(i) for i in [0, count), each on a thread of its own (one: on the caller's).
void on_threads(std::size_t count, const std::function<void(std::size_t)>& f) {
  if (count == 1) return f(0);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) threads.emplace_back(f, i);
  for (std::thread& thread : threads) thread.join();
}

// Rank 0, which waits for the others to go, goes last.
void end_all(std::vector<std::shared_ptr<Rendezvous>>& ranks) {
  while (!ranks.empty()) ranks.pop_back();
}

// Tells the other ranks what went wrong on this one. Consequences of another's failure are known already.
void tell(Rendezvous& rank, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const AbortedError&) {
  } catch (const Error& e) {
    rank.abort(e.code(), e.what());
  } catch (const std::bad_alloc&) {
    rank.abort(ExitCode::does_not_fit, "out of host memory");
  } catch (const std::exception& e) {
    rank.abort(ExitCode::failed, e.what());
  } catch (...) {
    rank.abort(ExitCode::failed, "an unknown exception");
  }
}

}  // namespace

ProcessRanks::ProcessRanks(const JoinOptions& options, int64 count) : ranks_(static_cast<std::size_t>(count)) {
  std::mutex mutex;
  std::exception_ptr error;
  on_threads(ranks_.size(), [&](std::size_t i) {
    JoinOptions own = options;
    own.rank += static_cast<int64>(i);
    try {
      ranks_[i] = Rendezvous::join(own);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  });
  if (!error) return;
  end_all(ranks_);
  std::rethrow_exception(error);
}

ProcessRanks::~ProcessRanks() { end_all(ranks_); }

void ProcessRanks::guard(const std::function<void()>& work) {
  std::exception_ptr error;
  try {
    work();
    first().abort_state()->check();
    return;
  } catch (...) {
    error = std::current_exception();
  }
  tell(first(), error);
  rethrow(error);
}

void ProcessRanks::run(GroupUse use, const std::function<void(Group& world)>& body) {
  std::mutex mutex;
  std::vector<std::exception_ptr> errors(ranks_.size());
  on_threads(ranks_.size(), [&](std::size_t i) {
    try {
      const auto world = create_process_group(ranks_[i], use);
      body(*world);
      ranks_[i]->leave();  // before the connections go: others may still be reading from them
    } catch (...) {
      errors[i] = std::current_exception();
      tell(*ranks_[i], errors[i]);
    }
  });
  const auto failure = first().failure();
  const std::size_t culprit = failure ? static_cast<std::size_t>(failure->rank - first().rank()) : 0;
  if (failure && culprit < errors.size() && errors[culprit]) rethrow(errors[culprit]);
  for (const auto& error : errors)
    if (error) rethrow(error);
}

// Whether this process is the one of its host that tells: that of the lowest rank that can.
bool ProcessRanks::tells(const Abort& failure) {
  const auto& peers = first().peers();
  const std::string& host = peers[static_cast<std::size_t>(first().rank())].host_id;
  for (int64 r = 0; r < first().rank(); ++r)
    if (!(failure.lost && r == failure.rank) && peers[static_cast<std::size_t>(r)].host_id == host) return false;
  return true;
}

void ProcessRanks::rethrow(std::exception_ptr own) {
  const auto failure = first().failure();
  if (!failure) std::rethrow_exception(own);
  const bool here = failure->rank >= first().rank() && failure->rank < first().rank() + count();
  if (here) try {
      std::rethrow_exception(own);
    } catch (const AbortedError&) {  // lost, as the others see it
    }
  throw JobError(*failure, here || tells(*failure));
}

}  // namespace megatoken
