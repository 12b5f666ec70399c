// Which ranks of a job this process is, and where the others are found: from what a launcher put into the environment
// (torchrun, accelerate launch, Kubernetes; mpirun; srun; MPICH), or from num_processes and num_machines.
// docs/launching.md shows every way.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "spec/run_config.h"

namespace megatoken {

// The value of an environment variable; nullopt: not set, or empty.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

struct Launch {
  int64 size = 1;        // ranks of the job
  int64 first_rank = 0;  // of this process
  int64 ranks_here = 1;  // threads of this process
  std::string launcher;  // in words; empty: there is none
  // The rest: where several processes meet.
  std::string master;        // rank 0's host
  std::vector<int64> ports;  // where its service may be
  std::string job;           // equal on all ranks, different from other jobs' where the launcher tells
  bool one_host = false;     // surely all ranks are on one
  int64 join_seconds = 8;    // for all ranks to come: MEGATOKEN_JOIN_SECONDS, for clusters that start slowly

  bool alone() const { return ranks_here == size; }
};

// ConfigError naming the variables or keys that are missing, no numbers, or contradict each other or num_processes.
Launch find_launch(const ParallelOptions& parallel, const Environment& environment);

// The first host of a Slurm node list: "gpu[003-007,9],login1" is gpu003. Empty when it can't be told.
std::string first_host(const std::string& node_list);

}  // namespace megatoken
