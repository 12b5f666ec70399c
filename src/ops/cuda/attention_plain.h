// Attention by plain kernels, for what cuDNN doesn't take: odd head dimensions, unaligned views, tiny blocks. Right for any
// size; a warp per row, so far slower than cuDNN on large blocks.
#pragma once

#include "device/cuda/cuda_stream.h"
#include "ops/attention_block.h"

namespace megatoken::cuda {

inline constexpr int64 kMostPlainHeadDim = 512;

void attention_forward_plain(CudaStream& stream, const AttentionForward& op);
// delta: heads * Sq float32 of scratch. Deterministic.
void attention_backward_plain(CudaStream& stream, const AttentionBackward& op, float* delta);

}  // namespace megatoken::cuda
