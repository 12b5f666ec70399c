// Ranks with a GPU each, over NCCL.
#pragma once

#include <memory>

#include "comm/group.h"

namespace megatoken {

// The ranks of `host` as a group for streams of CUDA devices; `device` is this rank's, no other rank's. Collective.
// Host operations, split and abort are host's; its abort state ends NCCL's work on this rank too, so nothing waits for
// a lost rank. Stream operations of all groups of a rank belong on one stream, in one order on all ranks. NVLink's
// in-switch sums are off unless NCCL_NVLS_ENABLE is set: their order is not NCCL's own. FitError when NCCL is not
// there; TrainError when the GPUs can't reach each other.
std::shared_ptr<Group> create_nccl_group(std::shared_ptr<Group> host, const Device& device);

}  // namespace megatoken
