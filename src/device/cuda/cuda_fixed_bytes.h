// Device memory that a rank on a GPU takes besides its arena: what the plan has to leave free. Needs no CUDA.
#pragma once

#include "base/dtype.h"
#include "device/device.h"

namespace megatoken {

// Scratch of one stream: cuBLASLt's workspace and the partial sums of reductions. The compute stream (made with
// StreamMode::in_order_inline) multiplies matrices; 32 MiB is what cuBLASLt's heuristics ask for at most on Hopper. The
// others move data and add it up.
inline constexpr int64 kComputeScratchBytes = int64{32} << 20;
inline constexpr int64 kTransferScratchBytes = int64{4} << 20;

constexpr int64 cuda_scratch_bytes(StreamMode mode) {
  return mode == StreamMode::in_order_inline ? kComputeScratchBytes : kTransferScratchBytes;
}

// Of a process per GPU: context, kernels of the program, of cuBLASLt and of cuDNN. 526 MiB and 14 MiB on an H200 after all ops ran.
inline constexpr int64 kCudaContextBytes = int64{544} << 20;

// A rank with its own GPU: one compute stream, three others.
constexpr int64 cuda_fixed_bytes() { return kCudaContextBytes + kComputeScratchBytes + 3 * kTransferScratchBytes; }

}  // namespace megatoken
