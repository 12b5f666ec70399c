// Grouped products without tensor cores, for any rows.
#pragma once

#include "device/cuda/cuda_stream.h"
#include "ops/grouped_gemm.h"

namespace megatoken::cuda {

void grouped_plain(CudaStream& stream, const GroupedGemm& op);

}  // namespace megatoken::cuda
