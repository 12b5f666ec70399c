// One cuDNN call: a rectangle, or causal aligned to the bottom right, which cuDNN's forward does at full speed for any
// number of keys. Offsets beyond 2^31 elements are right there (docs/cudnn.md). Short calls are padded to one of few sizes,
// so that they share graphs; o then comes out of the workspace.
#include "ops/cuda/attention_choice.h"
#include "ops/cuda/attention_copies.h"
#include "ops/cuda/attention_graph.h"
#include "ops/cuda/attention_plain.h"
#include "ops/op_table_cuda.h"

namespace megatoken {
namespace {

using namespace cuda;

bool by_cudnn(CudaStream& stream, const AttentionForward& op) {
  if (!cudnn_takes_shape(op.q.rows, op.k.rows, op.head_dim)) return false;
  for (const View* v : {&op.q, &op.k, &op.v, &op.o})
    if (!cudnn_takes_view(*v)) return false;
  const bool pad = to_be_padded(op.q.rows, op.k.rows);
  const ForwardRoom at(op, op.q.rows, op.k.rows, pad);
  std::byte* const room = aligned_start(op.workspace);
  AttentionCall call = at.call;
  View q = op.q, k = op.k, v = op.v, o = op.o;
  AttentionPointers p;
  p.stats = room + at.stats;
  if (pad) {
    q = padded_copy(stream, q, room + at.q, call.queries);
    k = padded_copy(stream, k, room + at.k, call.keys);
    v = padded_copy(stream, v, room + at.v, call.keys);
    o = View(room + at.o, DType::bf16, call.queries, op.o.cols);
    p.true_queries = room + at.lengths;
    p.true_keys = room + at.lengths + kWorkspaceAlignment;
    write_length(stream, p.true_queries, op.q.rows);
    write_length(stream, p.true_keys, op.k.rows);
  }
  call.q_stride = q.row_stride;
  call.k_stride = k.row_stride;
  call.v_stride = v.row_stride;
  call.o_stride = o.row_stride;
  p.q = q.data;
  p.k = k.data;
  p.v = v.data;
  p.o = o.data;
  if (!run_attention(stream, call, p, room + at.library)) return false;
  if (pad) convert_cuda(stream, {o.row_range(0, op.o.rows), op.o});
  unpack_lse(stream, static_cast<const float*>(p.stats), call.queries, op.lse);
  return true;
}

}  // namespace

void attention_forward_cuda(Stream& stream, const AttentionForward& op) {
  validate(op);
  require_bf16("attention_forward", "q", op.q);
  const int64 needed = attention_forward_workspace_cuda(op);
  check(op.workspace.bytes() >= needed, "attention_forward: a workspace of {} bytes, {} needed", op.workspace.bytes(),
        needed);
  if (op.q.rows == 0) return;
  CudaStream& cuda = cuda_stream(stream);
  if (!by_cudnn(cuda, op)) attention_forward_plain(cuda, op);
  cuda.launched("attention_forward");
}

}  // namespace megatoken
