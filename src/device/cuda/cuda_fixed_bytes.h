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

// Of a process per GPU: context, kernels of the program, of cuBLASLt and of cuDNN. 526 MiB and 14 MiB on an H200 after
// all ops ran.
inline constexpr int64 kCudaContextBytes = int64{544} << 20;

// Of a rank with a GPU of its own, for NCCL: the receive buffers of one communicator. An upper estimate from
// NCCL 2.28's defaults, not yet measured: 24 channels with a ring and a tree (five connections), each 4 MiB plain, 4.7
// MiB of 128-byte lines and 0.5 MiB of 8-byte lines.
inline constexpr int64 kNcclBytes = int64{24} * 5 * 9421 * 1024;

// One rank's part of the context and its streams, where `ranks` threads of one process share a GPU and its context. A
// rank has two compute streams, the step's and the one that loads and saves, and three others.
constexpr int64 cuda_fixed_bytes(int64 ranks = 1) {
  return (kCudaContextBytes + ranks - 1) / ranks + 2 * kComputeScratchBytes + 3 * kTransferScratchBytes;
}

}  // namespace megatoken
