// One cuDNN call: a rectangle, or causal aligned to the bottom right, which cuDNN's forward does at full speed for any
// number of keys. Offsets beyond 2^31 elements are right there (docs/cudnn.md).
#include "ops/cuda/attention_choice.h"
#include "ops/cuda/attention_graph.h"
#include "ops/cuda/attention_lse.h"
#include "ops/cuda/attention_plain.h"
#include "ops/op_table_cuda.h"

namespace megatoken {
namespace {

using namespace cuda;

AttentionCall call_of(const AttentionForward& op) {
  AttentionCall call;
  if (op.mask == AttentionMask::causal)
    call.diagonal = op.q.rows == op.k.rows ? Diagonal::top_left : Diagonal::bottom_right;
  call.heads = op.heads;
  call.kv_heads = op.kv_heads;
  call.queries = op.q.rows;
  call.keys = op.k.rows;
  call.head_dim = op.head_dim;
  call.q_stride = op.q.row_stride;
  call.k_stride = op.k.row_stride;
  call.v_stride = op.v.row_stride;
  call.o_stride = op.o.row_stride;
  call.scale = op.scale;
  return call;
}

int64 stats_bytes(const AttentionForward& op) { return aligned_bytes(4 * op.heads * op.q.rows); }

bool by_cudnn(CudaStream& stream, const AttentionForward& op) {
  if (!cudnn_takes_shape(op.q.rows, op.k.rows, op.head_dim)) return false;
  for (const View* v : {&op.q, &op.k, &op.v, &op.o})
    if (!cudnn_takes_view(*v)) return false;
  AttentionPointers p;
  p.q = op.q.data;
  p.k = op.k.data;
  p.v = op.v.data;
  p.o = op.o.data;
  std::byte* const room = aligned_start(op.workspace);
  p.stats = room;
  if (!run_attention(stream, call_of(op), p, room + stats_bytes(op))) return false;
  unpack_lse(stream, static_cast<const float*>(p.stats), op.lse);
  return true;
}

}  // namespace

int64 attention_forward_workspace_cuda(const AttentionForward& op) {
  return kWorkspaceAlignment + stats_bytes(op) + aligned_bytes(attention_library_bytes(call_of(op)));
}

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
