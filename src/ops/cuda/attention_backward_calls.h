// One piece of attention's backward as a call of cuDNN, in one of the forms of attention_room.h.
#pragma once

#include "ops/cuda/attention_choice.h"
#include "ops/cuda/attention_graph.h"

namespace megatoken::cuda {

// Enqueues a full piece or a causal square, in `room`, and adds dq, dk, dv. False when cuDNN doesn't take it.
bool run_backward_call(CudaStream& stream, const AttentionBackward& op, Form form, std::byte* room);

}  // namespace megatoken::cuda
