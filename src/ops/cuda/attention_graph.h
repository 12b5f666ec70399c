// One attention call as cuDNN runs it: batch 1, bf16, packed statistics. Graphs are built once per shape and kept.
#pragma once

#include "device/cuda/cuda_stream.h"
#include "ops/attention_room.h"

namespace megatoken::cuda {

struct AttentionPointers {
  void *q = nullptr, *k = nullptr, *v = nullptr, *o = nullptr;
  void* stats = nullptr;  // f32 [heads][queries]
  void *dout = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
  void *true_queries = nullptr, *true_keys = nullptr;  // an i32 each, with AttentionCall::lengths
};

// Enqueues the call. False when cuDNN doesn't take it: nothing has been enqueued. FitError when cuDNN wants more
// workspace than attention_library_bytes promised.
bool run_attention(CudaStream& stream, const AttentionCall& call, const AttentionPointers& pointers, void* workspace);

}  // namespace megatoken::cuda
