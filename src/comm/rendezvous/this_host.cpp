#include "comm/rendezvous/this_host.h"

#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <random>

namespace megatoken {

Peer this_host() {
  Peer peer;
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) == 0) peer.host = name;
  // Containers on one machine have names of their own, and memory limits of their own.
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  peer.host_id = boot + "/" + peer.host;
  peer.process = getpid();
  static const int64 key = [] {  // process ids alone may be equal in two containers
    std::random_device device;
    return static_cast<int64>(std::uint64_t{device()} << 32 | device());
  }();
  peer.process_key = key;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0)
    for (std::size_t core = 0; core < CPU_SETSIZE; ++core) peer.cores.push_back(CPU_ISSET(core, &set) ? '1' : '0');
  peer.cores.erase(peer.cores.find_last_not_of('0') + 1);
  return peer;
}

}  // namespace megatoken
