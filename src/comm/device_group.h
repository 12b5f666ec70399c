// Which group moves data between the ranks' devices.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/group.h"

namespace megatoken {

// Where a rank works.
struct Seat {
  std::string process;   // different for any two processes of a job
  std::string hardware;  // Device::hardware_id
  DeviceKind kind = DeviceKind::cpu;
};

enum class DeviceTransport {
  none,     // one rank
  host,     // CPU ranks: the host's group
  threads,  // ranks of one process, some of which share a GPU: copies on the devices
  nccl,     // every rank a GPU of its own
};

// By the seats of all ranks, so that all choose alike. ConfigError naming two ranks when processes share a GPU, which
// NCCL refuses, or when some ranks work on the CPU and some on a GPU.
DeviceTransport choose_transport(const std::vector<Seat>& seats);

// The ranks of `host` as a group for streams of `device`, this rank's: host itself or an NCCL group whose host
// operations are host's. Collective over host. Errors of choose_transport; FitError when NCCL is needed and isn't
// there.
std::shared_ptr<Group> create_device_group(std::shared_ptr<Group> host, const Device& device);

}  // namespace megatoken
