// The processes of a job and what they must decide alike: each prepares the run by itself, from its own files and on
// its own host. All functions are collective among processes; alone (no rendezvous) they do nothing but the work.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/rendezvous/rendezvous.h"
#include "spec/launch.h"
#include "spec/machine.h"
#include "spec/run_config.h"

namespace megatoken {

class Company {
 public:
  Company() = default;                                                    // this process has all ranks
  explicit Company(Rendezvous& rendezvous) : rendezvous_(&rendezvous) {}  // of this process' first rank

  bool alone() const { return rendezvous_ == nullptr; }
  int64 first_rank() const { return rendezvous_ == nullptr ? 0 : rendezvous_->rank(); }  // of this process
  bool first() const { return rendezvous_ == nullptr || rendezvous_->rank() == 0; }  // has rank 0: writes and speaks

  // Where each of `size` ranks stands among those of its host, by rank, and the most that any host has. Alone: as if
  // they were shared out over num_machines.
  std::vector<int64> local_ranks(int64 size, int64 num_machines) const;
  int64 ranks_per_host(int64 size, int64 num_machines) const;

  // The least of every host's memory, and cores such that cores / ranks_per_host are what the poorest rank may use.
  Machine agree_on_machine(const Machine& own, int64 ranks_per_host) const;
  // What rank 0's process decides.
  std::string of_first(const std::string& name, const std::function<std::string()>& decide) const;
  // Does the work in one process of each host before the others: they find its files in the page cache, its results in
  // the token cache.
  void one_of_host_first(const std::string& name, const std::function<void()>& work) const;
  // FileError naming `what` and the ranks, when some process has another digest of it than rank 0's.
  void require_equal(const std::string& what, const std::string& digest) const;

 private:
  Rendezvous* rendezvous_ = nullptr;
};

// What all ranks must have been told alike: every key that was given, but those that name a place of one host.
Settings settings_of(const RunConfig& config);

}  // namespace megatoken
