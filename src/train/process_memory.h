// This process's memory, from the kernel.
#pragma once

#include "base/dtype.h"

namespace megatoken {

// VmHWM: the largest resident size so far, in bytes; 0 where the kernel does not tell.
int64 peak_resident_bytes();

}  // namespace megatoken
