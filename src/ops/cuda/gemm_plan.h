// One call of cuBLASLt: a product small enough that no offset inside an operand reaches 2^31 elements.
#pragma once

#include "device/cuda/cuda_stream.h"
#include "ops/gemm.h"

namespace megatoken::cuda {

// d = op(a) op(b) + (c absent ? 0 : c) by cuBLASLt; false when it has no algorithm for these strides and alignments.
// bf16 operands, float32 sums; m, n, k at least 1. Keeps descriptors and the chosen algorithm per shape and alignment in
// the stream.
bool gemm_cublaslt(CudaStream& stream, const Gemm& gemm);

// The same by a plain kernel, for any strides and alignments.
void gemm_plain(CudaStream& stream, const Gemm& gemm);

}  // namespace megatoken::cuda
