#include "ops/cuda/attention_backward_calls.h"

#include "ops/cuda/attention_copies.h"
#include "ops/op_table_cuda.h"

namespace megatoken::cuda {
namespace {

bool contiguous(const View& v) { return v.row_stride == v.cols; }

View matrix(std::byte* data, int64 rows, int64 cols) { return View(data, DType::bf16, rows, cols); }

// v itself, or its rows copied together.
View together(CudaStream& stream, const View& v, std::byte* room) {
  return contiguous(v) ? v : padded_copy(stream, v, room, v.rows);
}

}  // namespace

bool run_backward_call(CudaStream& stream, const AttentionBackward& op, Form form, std::byte* room) {
  const BackwardRoom at(op, op.q.rows, op.k.rows, form);
  AttentionCall call = at.call;
  View q = op.q, k = op.k, v = op.v, o = op.o, dout = op.dout;
  auto* const stats = reinterpret_cast<float*>(room + at.stats);
  AttentionPointers p;
  if (form == Form::folded) {
    q = together(stream, q, room + at.q);
    o = together(stream, o, room + at.o);
    dout = together(stream, dout, room + at.dout);
    pack_lse_by_query(stream, op.lse, stats);
  } else if (form == Form::padded) {
    q = padded_copy(stream, q, room + at.q, call.queries);
    o = padded_copy(stream, o, room + at.o, call.queries);
    dout = padded_copy(stream, dout, room + at.dout, call.queries);
    k = padded_copy(stream, k, room + at.k, call.keys);
    v = padded_copy(stream, v, room + at.v, call.keys);
    stream.fill_zero(stats, 4 * call.queries * op.heads);
    pack_lse(stream, op.lse, stats, call.queries);
    p.true_queries = room + at.lengths;
    p.true_keys = room + at.lengths + kWorkspaceAlignment;
    write_length(stream, p.true_queries, op.q.rows);
    write_length(stream, p.true_keys, op.k.rows);
  } else {
    pack_lse(stream, op.lse, stats, call.queries);
  }
  const bool fold = form == Form::folded;
  call.diagonal = op.mask == AttentionMask::causal ? Diagonal::top_left : Diagonal::none;
  call.q_stride = fold ? op.head_dim : q.row_stride;
  call.k_stride = k.row_stride;
  call.v_stride = v.row_stride;
  call.o_stride = fold ? op.head_dim : o.row_stride;
  call.dout_stride = fold ? op.head_dim : dout.row_stride;
  p.q = q.data;
  p.k = k.data;
  p.v = v.data;
  p.o = o.data;
  p.dout = dout.data;
  p.stats = stats;
  p.dq = room + at.dq;
  p.dk = room + at.dk;
  p.dv = room + at.dv;
  if (!run_attention(stream, call, p, room + at.library)) return false;
  accumulate_cuda(stream, {matrix(room + at.dq, op.q.rows, op.q.cols), op.dq});
  accumulate_cuda(stream, {matrix(room + at.dk, op.k.rows, op.k.cols), op.dk});
  accumulate_cuda(stream, {matrix(room + at.dv, op.v.rows, op.v.cols), op.dv});
  return true;
}

}  // namespace megatoken::cuda
