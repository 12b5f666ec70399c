// Room that attention takes on a GPU, known without one: how a piece of attention becomes a call of cuDNN, and where
// the call's parts lie in the op's workspace. The kernels (attention_*_cuda.cpp) and the planner share these numbers.
#pragma once

#include <compare>

#include "ops/attention_block.h"

namespace megatoken::cuda {

// Where the causal diagonal ends. Bottom right is fast in the forward alone (docs/cudnn.md).
enum class Diagonal { none, top_left, bottom_right };

// One call of cuDNN: batch 1, bf16, packed statistics.
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

// Bytes cuDNN asks for; exact for the forward's and the backward's Hopper kernels of cuDNN 9.19 (docs/cudnn.md).
// Backward: float32 dq, rowsum(dout o), and dk, dv of each query head where heads share a KV head.
int64 attention_library_bytes(const AttentionCall& call);

// Blocks of at most this many scores go to the plain kernels: cuDNN would compile up to a second for each new shape.
inline constexpr int64 kMostPlainScores = 128 * 128;
// By shape: head dimensions that cuDNN offers; one query alone takes an engine with another workspace.
inline bool cudnn_takes_shape(int64 queries, int64 keys, int64 head_dim) {
  return head_dim % 8 == 0 && head_dim <= 256 && queries > 1 && queries * keys > kMostPlainScores;
}

// A call of at most this many queries and keys is padded to one of few sizes; a longer one has a graph of its own.
inline constexpr int64 kMostPadded = 4096;
// The next of the sizes 128, 160, 192, 224, 256, 320, ...: four to an octave.
int64 padded_size(int64 n);
bool to_be_padded(int64 queries, int64 keys);

inline constexpr int64 kWorkspaceAlignment = 256;
constexpr int64 aligned_bytes(int64 bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

// Offsets of a forward call's parts in bytes.
struct ForwardRoom {
  // queries, keys: of the call; padded: copied to sizes of which there are few.
  ForwardRoom(const AttentionForward& op, int64 queries, int64 keys, bool padded);

  AttentionCall call;  // strides not set
  int64 stats, lengths, q, k, v, o, library;
  int64 total = 0;

 private:
  int64 take(int64 bytes);
};

enum class Form {
  as_is,   // the views themselves
  folded,  // full, one KV head: the heads of a query become rows of one head, which saves dk and dv of every query head
           // and rounds them once; q, o and dout are made contiguous for that
  padded,  // short: everything is copied to sizes of which there are few, with the true lengths beside
};

// Offsets of a backward call's parts in bytes; a copy that is not made takes none.
struct BackwardRoom {
  // queries, keys: of the piece. Pointers of op play no role, strides do.
  BackwardRoom(const AttentionBackward& op, int64 queries, int64 keys, Form form);

  AttentionCall call;  // mask not set
  int64 stats, lengths, q, k, v, o, dout, dq, dk, dv, library;
  int64 total = 0;

 private:
  int64 take(int64 bytes);
};

// Whether the heads of a backward piece are folded into rows.
bool folds(const AttentionBackward& op);
// The widest row stride of what a backward call reads by query, and how many query rows one call may have: at least 1.
int64 widest_stride(const AttentionBackward& op);
int64 rows_per_call(const AttentionBackward& op);
inline constexpr int64 kMostSpan = (int64{1} << 31) - 1;  // elements of o and dout that a backward call may span

}  // namespace megatoken::cuda

namespace megatoken {

// The workspaces of the CUDA op table: the most that any way of doing the op takes for these sizes or fewer, so that
// they never decrease.
int64 attention_forward_workspace_cuda(const AttentionForward& op);
int64 attention_backward_workspace_cuda(const AttentionBackward& op);

}  // namespace megatoken
