// Which processors a rank computes on.
#pragma once

#include <sched.h>

#include "base/dtype.h"

namespace megatoken {

// Binds the calling thread, and so the threads it starts from then on, to part `share` of `shares` of the processors
// that it may run on: neighbours, which on large hosts share caches and memory, so that a rank's memory stays near and
// ranks do not push each other about. Where there are fewer processors than shares, or one share, nothing is bound.
// The destructor, on the same thread, gives back what was before.
class CpuShare {
 public:
  CpuShare(int64 share, int64 shares);
  ~CpuShare();
  CpuShare(const CpuShare&) = delete;
  CpuShare& operator=(const CpuShare&) = delete;

 private:
  cpu_set_t before_;
  bool bound_ = false;
};

}  // namespace megatoken
