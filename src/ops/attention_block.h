// Attention of one block: a range of queries against a range of keys. Query head h uses KV head h / (heads / kv_heads).
// causal is aligned to the bottom right: query i sees keys j <= i + (Sk - Sq). lse is the natural-log sum of
// exp(scale * q k) of the keys seen, float32. Every query sees at least one key (causal: Sk >= Sq).
//
// Blocks of the same queries are merged exactly by AttentionMerge (Milakov and Gimelshein 2018; the online softmax):
//   m = max(lse_a, lse_b); o = (o_a exp(lse_a - m) + o_b exp(lse_b - m)) / (exp(lse_a - m) + exp(lse_b - m)).
// Backward takes the merged o and lse, so that block gradients add up to the whole gradient.
#pragma once

#include "ops/cost.h"
#include "tensor/view.h"

namespace megatoken {

enum class AttentionMask { full, causal };

struct AttentionForward {
  View q;          // [Sq, heads * head_dim] f32 or bf16, rows strided
  View k;          // [Sk, kv_heads * head_dim] dtype of q, rows strided
  View v;          // as k
  View o;          // [Sq, heads * head_dim] dtype of q, rows strided; overwritten
  View lse;        // [heads, Sq] f32, rows strided; overwritten
  View workspace;  // [1, n] u8, 256-byte aligned, n at least the op table's attention_forward_workspace
  int64 heads = 0;
  int64 kv_heads = 0;
  int64 head_dim = 0;
  float scale = 1;
  AttentionMask mask = AttentionMask::full;
};

struct AttentionMerge {
  View o_part;    // [Sq, heads * head_dim] f32 or bf16
  View lse_part;  // [heads, Sq] f32
  View o;         // [Sq, heads * head_dim] f32, merged into
  View lse;       // [heads, Sq] f32, merged into
  int64 heads = 0;
  int64 head_dim = 0;
  bool first = false;  // o and lse hold nothing yet: copy
};

struct AttentionBackward {
  View q, k, v;    // as in the forward
  View o;          // [Sq, heads * head_dim] merged output, dtype of q
  View dout;       // [Sq, heads * head_dim] dtype of q
  View lse;        // [heads, Sq] f32, merged
  View dq;         // [Sq, heads * head_dim] f32, added to
  View dk;         // [Sk, kv_heads * head_dim] f32, added to
  View dv;         // [Sk, kv_heads * head_dim] f32, added to
  View workspace;  // [1, n] u8, 256-byte aligned, n at least the op table's attention_backward_workspace
  int64 heads = 0;
  int64 kv_heads = 0;
  int64 head_dim = 0;
  float scale = 1;
  AttentionMask mask = AttentionMask::full;
};

void validate(const AttentionForward& op);
void validate(const AttentionMerge& op);
void validate(const AttentionBackward& op);
// Only the keys a query sees are counted: 4 * pairs * heads * head_dim forward, 2.5 times that backward.
Cost cost_of(const AttentionForward& op);
Cost cost_of(const AttentionMerge& op);
Cost cost_of(const AttentionBackward& op);

}  // namespace megatoken
