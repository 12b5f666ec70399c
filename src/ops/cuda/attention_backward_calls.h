// The ways in which one piece of attention's backward becomes a call of cuDNN, and the room each takes.
#pragma once

#include "ops/attention_block.h"
#include "ops/cuda/attention_choice.h"
#include "ops/cuda/attention_graph.h"

namespace megatoken::cuda {

enum class Form {
  as_is,   // the views themselves
  folded,  // full, one KV head: the heads of a query become rows of one head, which saves dk and dv of every query head
           // and rounds them once; q, o and dout are made contiguous for that
  padded,  // short: everything is copied to sizes of which there are few, with the true lengths beside
};

// Offsets of a call's parts in bytes; a copy that is not made takes none.
struct BackwardRoom {
  // queries, keys: of the piece. Pointers of op play no role, strides do.
  BackwardRoom(const AttentionBackward& op, int64 queries, int64 keys, Form form);

  AttentionCall call;  // mask not set
  int64 stats, lengths, q, k, v, o, dout, dq, dk, dv, library;
  int64 total = 0;

 private:
  int64 take(int64 bytes) {
    const int64 at = total;
    total += aligned_bytes(bytes);
    return at;
  }
};

// Enqueues a full piece or a causal square, in `room`, and adds dq, dk, dv. False when cuDNN doesn't take it.
bool run_backward_call(CudaStream& stream, const AttentionBackward& op, Form form, std::byte* room);

}  // namespace megatoken::cuda
