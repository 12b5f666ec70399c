// One attention call as cuDNN runs it: batch 1, bf16, packed statistics. Graphs are built once per shape and kept.
#pragma once

#include <compare>

#include "device/cuda/cuda_stream.h"

namespace megatoken::cuda {

// Where the causal diagonal ends. Bottom right is fast in the forward alone (docs/cudnn.md).
enum class Diagonal { none, top_left, bottom_right };

struct AttentionCall {
  bool backward = false;
  Diagonal diagonal = Diagonal::none;
  int64 heads = 0, kv_heads = 0, queries = 0, keys = 0, head_dim = 0;
  // Row strides in elements; a head is a column slice. dq, dk, dv are contiguous.
  int64 q_stride = 0, k_stride = 0, v_stride = 0, o_stride = 0, dout_stride = 0;
  float scale = 1;
  bool lengths = false;  // the true numbers of queries and keys come in device memory; full and causal alike
  auto operator<=>(const AttentionCall&) const = default;
};

struct AttentionPointers {
  void *q = nullptr, *k = nullptr, *v = nullptr, *o = nullptr;
  void* stats = nullptr;  // f32 [heads][queries]
  void *dout = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
  void *true_queries = nullptr, *true_keys = nullptr;  // an i32 each, with AttentionCall::lengths
};

// Bytes cuDNN asks for; exact for the forward's and the backward's Hopper kernels of cuDNN 9.19 (docs/cudnn.md). Backward:
// float32 dq, rowsum(dout o), and dk, dv of each query head where heads share a KV head.
int64 attention_library_bytes(const AttentionCall& call);

// Enqueues the call. False when cuDNN doesn't take it: nothing has been enqueued. FitError when cuDNN wants more
// workspace than attention_library_bytes promised.
bool run_attention(CudaStream& stream, const AttentionCall& call, const AttentionPointers& pointers, void* workspace);

}  // namespace megatoken::cuda
