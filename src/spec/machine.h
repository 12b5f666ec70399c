// The machine a run is planned for.
#pragma once

#include <string>

#include "base/dtype.h"

namespace megatoken {

struct Machine {
  std::string kind = "cpu";  // "cpu", or the accelerator's name
  int64 device_bytes = 0;    // of one device; on the CPU the device is the host: equal to host_bytes
  int64 host_bytes = 0;      // usable by this process and its siblings: memory, or the cgroup's limit when lower
  int64 cores = 1;           // usable: affinity mask and cgroup quota respected
  bool host_limited_by_cgroup = false;
};

// Reads /proc and /sys under `root` (empty: this machine; a directory: a copy of those files, for tests).
// Throws TrainError when memory can't be told.
Machine detect_machine(const std::string& root = "");

}  // namespace megatoken
