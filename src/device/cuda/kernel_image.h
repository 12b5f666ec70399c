// Whether the program was built for the current device's architecture.
#pragma once

#include <cuda_runtime_api.h>

namespace megatoken {

// cudaSuccess when the current device can run the program's kernels.
cudaError_t find_kernel_image();

}  // namespace megatoken
