// cuDNN's backward writes bf16 dq, dk, dv into the workspace; they are added to the float32 sums from there. What its
// kernels can't do is cut away first (docs/cudnn.md):
//   causal aligned to the bottom right doesn't skip masked blocks: a rectangle, and a square aligned to the top left;
//   offsets of o and dout past 2^31 elements are wrong: query rows are cut.
// Then each piece takes one of the forms of attention_backward_calls.h, or the plain kernels.
#include <algorithm>

#include "ops/cuda/attention_backward_calls.h"
#include "ops/cuda/attention_plain.h"
#include "ops/op_table_cuda.h"

namespace megatoken {
namespace {

using namespace cuda;

bool by_cudnn(CudaStream& stream, const AttentionBackward& op, bool fold) {
  if (!cudnn_takes_shape(op.q.rows, op.k.rows, op.head_dim)) return false;
  for (const View* v : {&op.q, &op.k, &op.v, &op.o, &op.dout})
    if (!cudnn_takes_view(*v)) return false;
  if (op.q.rows * widest_stride(op) > kMostSpan) return false;
  const Form form = fold ? Form::folded : to_be_padded(op.q.rows, op.k.rows) ? Form::padded : Form::as_is;
  return run_backward_call(stream, op, form, aligned_start(op.workspace));
}

// A full piece or a causal square.
void run(CudaStream& stream, const AttentionBackward& op, bool fold) {
  if (op.q.rows == 0 || op.k.rows == 0) return;
  if (!by_cudnn(stream, op, fold))
    attention_backward_plain(stream, op, reinterpret_cast<float*>(aligned_start(op.workspace)));
}

AttentionBackward piece(const AttentionBackward& op, int64 query, int64 queries, int64 key, int64 keys, AttentionMask mask) {
  AttentionBackward p = op;
  for (View* v : {&p.q, &p.o, &p.dout, &p.dq}) *v = v->row_range(query, queries);
  p.lse = op.lse.col_range(query, queries);
  for (View* v : {&p.k, &p.v, &p.dk, &p.dv}) *v = v->row_range(key, keys);
  p.mask = mask;
  return p;
}

}  // namespace

void attention_backward_cuda(Stream& stream, const AttentionBackward& op) {
  validate(op);
  require_bf16("attention_backward", "q", op.q);
  const int64 needed = attention_backward_workspace_cuda(op);
  check(op.workspace.bytes() >= needed, "attention_backward: a workspace of {} bytes, {} needed", op.workspace.bytes(),
        needed);
  if (op.q.rows == 0) return;
  CudaStream& cuda = cuda_stream(stream);
  const bool causal = op.mask == AttentionMask::causal;
  const int64 before = op.k.rows - op.q.rows;  // keys that every query of a causal block sees
  const bool whole = !cudnn_takes_shape(op.q.rows, op.k.rows, op.head_dim);
  const int64 step = whole ? op.q.rows : rows_per_call(op);
  for (int64 query = 0; query < op.q.rows; query += step) {
    const int64 count = std::min(step, op.q.rows - query);
    if (whole || !causal) {
      run(cuda, piece(op, query, count, 0, op.k.rows, op.mask), folds(op));
    } else {
      run(cuda, piece(op, query, count, 0, before + query, AttentionMask::full), false);
      run(cuda, piece(op, query, count, before + query, count, AttentionMask::causal), false);
    }
  }
  cuda.launched("attention_backward");
}

}  // namespace megatoken
