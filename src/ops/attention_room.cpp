#include "ops/attention_room.h"

#include <algorithm>

namespace megatoken::cuda {
namespace {

constexpr int64 kFoldFrom = 32768;  // keys: one head has too few tiles below

bool contiguous(const View& v) { return v.row_stride == v.cols; }

}  // namespace

int64 attention_library_bytes(const AttentionCall& c) {
  constexpr int64 kSlack = 512;  // 256 with cuDNN 9.19, 264 with 9.14
  if (!c.backward) return kSlack;
  const int64 shared = c.heads > c.kv_heads ? 4 * c.heads * c.keys * c.head_dim : 0;
  return 4 * c.heads * c.queries * (c.head_dim + 1) + shared + kSlack;
}

int64 padded_size(int64 n) {
  if (n <= 128) return 128;
  int64 octave = 128;
  while (octave * 2 < n) octave *= 2;
  const int64 step = octave / 4;
  return (n + step - 1) / step * step;
}

bool to_be_padded(int64 queries, int64 keys) {
  return queries <= kMostPadded && keys <= kMostPadded &&
         (padded_size(queries) != queries || padded_size(keys) != keys);
}

ForwardRoom::ForwardRoom(const AttentionForward& op, int64 queries, int64 keys, bool padded) {
  call.diagonal = op.mask == AttentionMask::full ? Diagonal::none
                  : queries == keys              ? Diagonal::top_left
                                                 : Diagonal::bottom_right;
  call.heads = op.heads;
  call.kv_heads = op.kv_heads;
  call.queries = padded ? padded_size(queries) : queries;
  call.keys = padded ? padded_size(keys) : keys;
  call.head_dim = op.head_dim;
  call.scale = op.scale;
  call.lengths = padded;
  const int64 query_bytes = padded ? 2 * call.queries * op.heads * op.head_dim : 0;
  const int64 key_bytes = padded ? 2 * call.keys * op.kv_heads * op.head_dim : 0;
  stats = take(4 * op.heads * call.queries);
  lengths = take(padded ? 2 * kWorkspaceAlignment : 0);
  q = take(query_bytes);
  k = take(key_bytes);
  v = take(key_bytes);
  o = take(query_bytes);
  library = take(attention_library_bytes(call));
}

int64 ForwardRoom::take(int64 bytes) {
  const int64 at = total;
  total += aligned_bytes(bytes);
  return at;
}

BackwardRoom::BackwardRoom(const AttentionBackward& op, int64 queries, int64 keys, Form form) {
  const bool fold = form == Form::folded, pad = form == Form::padded;
  const int64 q_rows = pad ? padded_size(queries) : queries, k_rows = pad ? padded_size(keys) : keys;
  const int64 q_cols = op.heads * op.head_dim, k_cols = op.kv_heads * op.head_dim;
  const int64 query_bytes = 2 * q_rows * q_cols, key_bytes = 2 * k_rows * k_cols;
  const auto copy_of = [&](const View& rows, int64 bytes) {
    return take(pad || (fold && !contiguous(rows)) ? bytes : 0);
  };
  stats = take(4 * q_rows * op.heads);
  lengths = take(pad ? 2 * kWorkspaceAlignment : 0);
  q = copy_of(op.q, query_bytes);
  o = copy_of(op.o, query_bytes);
  dout = copy_of(op.dout, query_bytes);
  k = take(pad ? key_bytes : 0);
  v = take(pad ? key_bytes : 0);
  dq = take(query_bytes);
  dk = take(key_bytes);
  dv = take(key_bytes);
  call.backward = true;
  call.heads = fold ? 1 : op.heads;
  call.kv_heads = op.kv_heads;
  call.queries = fold ? q_rows * op.heads : q_rows;
  call.keys = k_rows;
  call.head_dim = op.head_dim;
  call.scale = op.scale;
  call.lengths = pad;
  library = take(attention_library_bytes(call));
}

int64 BackwardRoom::take(int64 bytes) {
  const int64 at = total;
  total += aligned_bytes(bytes);
  return at;
}

bool folds(const AttentionBackward& op) {
  return op.mask == AttentionMask::full && op.kv_heads == 1 && op.heads > 1 && op.k.rows >= kFoldFrom;
}

int64 widest_stride(const AttentionBackward& op) {
  return std::max({op.q.row_stride, op.o.row_stride, op.dout.row_stride, op.heads * op.head_dim, int64{1}});
}

int64 rows_per_call(const AttentionBackward& op) {
  const int64 rows = std::max<int64>(1, kMostSpan / widest_stride(op));
  return rows < op.q.rows && rows > 256 ? rows / 256 * 256 : std::min(rows, op.q.rows);
}

}  // namespace megatoken::cuda

namespace megatoken {

using namespace cuda;

int64 attention_forward_workspace_cuda(const AttentionForward& op) {
  const int64 queries = op.q.rows, keys = op.k.rows;
  return kWorkspaceAlignment +
         std::max(ForwardRoom(op, queries, keys, false).total,
                  ForwardRoom(op, std::min(queries, kMostPadded), std::min(keys, kMostPadded), true).total);
}

int64 attention_backward_workspace_cuda(const AttentionBackward& op) {
  const int64 rows = rows_per_call(op), keys = op.k.rows;
  int64 bytes = aligned_bytes(4 * op.heads * op.q.rows);  // the plain kernels' rowsum(dout o)
  bytes = std::max(bytes, BackwardRoom(op, rows, folds(op) ? kFoldFrom - 1 : keys, Form::as_is).total);
  if (folds(op)) bytes = std::max(bytes, BackwardRoom(op, rows, keys, Form::folded).total);
  const int64 short_rows = std::min(rows, kMostPadded), short_keys = std::min(keys, kMostPadded);
  return kWorkspaceAlignment + std::max(bytes, BackwardRoom(op, short_rows, short_keys, Form::padded).total);
}

}  // namespace megatoken
