// Host memory that the GPU's copy engines reach at full speed.
#pragma once

#include "device/device.h"

namespace megatoken {

// Pinned for every CUDA device. Huge pages touched by all cores, then registered: 16 GiB in 0.7 s where cudaHostAlloc
// takes 7 to 9 s (one H200's host, 16 cores). FitError naming `what` when the memory or the locked-memory limit is too
// small. Contents are zero.
Memory allocate_pinned(int64 bytes, const std::string& what);

}  // namespace megatoken
