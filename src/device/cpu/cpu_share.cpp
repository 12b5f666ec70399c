#include "device/cpu/cpu_share.h"

#include "base/error.h"

namespace megatoken {

CpuShare::CpuShare(int64 share, int64 shares) {
  check(share >= 0 && share < shares, "share {} of {} of the processors", share, shares);
  // A host with more processors than a cpu_set_t holds refuses: then nothing is bound.
  if (sched_getaffinity(0, sizeof(before_), &before_) != 0) return;
  const int64 processors = CPU_COUNT(&before_);
  if (shares == 1 || processors < shares) return;
  const int64 first = share * processors / shares;
  const int64 last = (share + 1) * processors / shares;
  cpu_set_t mine;
  CPU_ZERO(&mine);
  int64 place = 0;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &before_)) continue;
    if (place >= first && place < last) CPU_SET(cpu, &mine);
    ++place;
  }
  bound_ = sched_setaffinity(0, sizeof(mine), &mine) == 0;
}

CpuShare::~CpuShare() {
  if (bound_) sched_setaffinity(0, sizeof(before_), &before_);
}

}  // namespace megatoken
