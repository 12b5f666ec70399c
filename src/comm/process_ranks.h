// The ranks of a job of several processes that run in this one, each on a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/process_group.h"
#include "comm/rendezvous/rendezvous.h"

namespace megatoken {

// Another process' failure, which ended this one. It carries that failure's exit status and reason.
class JobError : public Error {
 public:
  JobError(const Abort& failure, bool told_here)
      : Error(static_cast<ExitCode>(failure.code), failure.reason), told_here_(told_here) {}
  // One process of each host tells; the others only exit with the same status.
  bool told_here() const { return told_here_; }

 private:
  bool told_here_;
};

class ProcessRanks {
 public:
  // Joins as ranks options.rank, options.rank + 1, ... (`count` of them). ConfigError as Rendezvous::join.
  ProcessRanks(const JoinOptions& options, int64 count);
  ~ProcessRanks();

  // The first of this process' ranks, for what a process does once.
  Rendezvous& first() { return *ranks_.front(); }
  int64 count() const { return static_cast<int64>(ranks_.size()); }

  // Runs `work` on the calling thread. When it throws, or has thrown on another process, the job ends everywhere:
  // rethrows the error of this process if that was the first, else JobError.
  void guard(const std::function<void()>& work);
  // Calls `body` as each of this process' ranks, with the group of all ranks, and waits until every rank of the job is
  // done. Errors as guard.
  void run(GroupUse use, const std::function<void(Group& world)>& body);

 private:
  bool tells(const Abort& failure);
  [[noreturn]] void rethrow(std::exception_ptr own);
  std::vector<std::shared_ptr<Rendezvous>> ranks_;
};

}  // namespace megatoken
