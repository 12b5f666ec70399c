// The sum of the ranks' values.
#pragma once

#include <cuda_runtime_api.h>

#include <span>

#include "base/dtype.h"

namespace megatoken {

// Stream::sum on a CUDA stream: at most Stream::kMaxTerms terms, count > 0, all memory reachable by the stream's
// device.
void launch_sum(cudaStream_t stream, std::span<const float* const> terms, float* out, int64 count);

}  // namespace megatoken
