#include "ops/attention_block.h"

#include <cmath>

#include <cstdint>

#include "ops/shape_check.h"

namespace megatoken {
namespace {

// Shapes of q, k, v; true for the forward and the backward.
template <typename Op>
void validate_inputs(const char* name, const Op& op) {
  check_count(name, "heads", op.heads, 1);
  check_count(name, "kv_heads", op.kv_heads, 1);
  check_count(name, "head_dim", op.head_dim, 1);
  check(op.heads % op.kv_heads == 0, "{}: {} query heads over {} KV heads", name, op.heads, op.kv_heads);
  check_view(name, "q", op.q, op.q.rows, op.heads * op.head_dim, kFloatTypes);
  check_view(name, "k", op.k, op.k.rows, op.kv_heads * op.head_dim, {op.q.dtype});
  check_view(name, "v", op.v, op.k.rows, op.kv_heads * op.head_dim, {op.q.dtype});
  check(op.q.rows == 0 || op.k.rows > 0, "{}: {} queries see no keys", name, op.q.rows);
  check(op.mask == AttentionMask::full || op.q.rows == 0 || op.k.rows >= op.q.rows,
        "{}: causal with {} queries and only {} keys", name, op.q.rows, op.k.rows);
}

// Arenas and devices align what they hand out so; kernels put float32 and wider there.
void check_workspace(const char* name, const View& workspace) {
  constexpr std::uintptr_t kAlignment = 256;
  check(reinterpret_cast<std::uintptr_t>(workspace.data) % kAlignment == 0, "{}: workspace is not {}-byte aligned",
        name, kAlignment);
}

template <typename Op>
double visible_pairs(const Op& op) {
  const auto queries = static_cast<double>(op.q.rows);
  const auto keys = static_cast<double>(op.k.rows);
  if (op.mask == AttentionMask::full) return queries * keys;
  return queries * (keys - queries) + queries * (queries + 1) / 2;
}

// Tiles of a causal block, whose work differs; those of a full one are equal, and kernels cut them to fill the device.
template <typename Op>
double units(const Op& op) {
  constexpr double kTile = 128;
  return op.mask == AttentionMask::full ? 0 : static_cast<double>(op.heads) * std::ceil(static_cast<double>(op.q.rows) / kTile);
}

}  // namespace

void validate(const AttentionForward& op) {
  validate_inputs("attention_forward", op);
  check_view("attention_forward", "o", op.o, op.q.rows, op.q.cols, {op.q.dtype});
  check_view("attention_forward", "lse", op.lse, op.heads, op.q.rows, {DType::f32});
  check_workspace("attention_forward", op.workspace);
}

void validate(const AttentionMerge& op) {
  check_count("attention_merge", "heads", op.heads, 1);
  check_count("attention_merge", "head_dim", op.head_dim, 1);
  check_view("attention_merge", "o_part", op.o_part, op.o.rows, op.heads * op.head_dim, kFloatTypes);
  check_view("attention_merge", "lse_part", op.lse_part, op.heads, op.o.rows, {DType::f32});
  check_view("attention_merge", "o", op.o, op.o.rows, op.heads * op.head_dim, {DType::f32});
  check_view("attention_merge", "lse", op.lse, op.heads, op.o.rows, {DType::f32});
}

void validate(const AttentionBackward& op) {
  validate_inputs("attention_backward", op);
  check_view("attention_backward", "o", op.o, op.q.rows, op.q.cols, {op.q.dtype});
  check_view("attention_backward", "dout", op.dout, op.q.rows, op.q.cols, {op.q.dtype});
  check_view("attention_backward", "lse", op.lse, op.heads, op.q.rows, {DType::f32});
  check_view("attention_backward", "dq", op.dq, op.q.rows, op.q.cols, {DType::f32});
  check_view("attention_backward", "dk", op.dk, op.k.rows, op.k.cols, {DType::f32});
  check_view("attention_backward", "dv", op.dv, op.v.rows, op.v.cols, {DType::f32});
  check_workspace("attention_backward", op.workspace);
}

Cost cost_of(const AttentionForward& op) {
  return {CostKind::attention_forward, 4.0 * visible_pairs(op) * static_cast<double>(op.heads * op.head_dim),
          static_cast<double>(op.q.bytes() + op.k.bytes() + op.v.bytes() + op.o.bytes() + op.lse.bytes()), units(op)};
}

Cost cost_of(const AttentionMerge& op) {
  return {CostKind::memory, 5.0 * static_cast<double>(op.o.elements()),
          static_cast<double>(op.o_part.bytes() + op.lse_part.bytes() + 2 * (op.o.bytes() + op.lse.bytes()))};
}

Cost cost_of(const AttentionBackward& op) {
  const int64 read = op.q.bytes() + op.k.bytes() + op.v.bytes() + op.o.bytes() + op.dout.bytes() + op.lse.bytes();
  const int64 added_to = op.dq.bytes() + op.dk.bytes() + op.dv.bytes();
  return {CostKind::attention_backward, 10.0 * visible_pairs(op) * static_cast<double>(op.heads * op.head_dim),
          static_cast<double>(read + 2 * added_to), units(op)};
}

}  // namespace megatoken
