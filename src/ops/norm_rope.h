// Per-head RMS norm (optional) followed by rotary position embedding (Su et al. 2021) in the half-split layout of
// transformers: with x = [x1, x2] halves of a head, y = [x1 cos - x2 sin, x2 cos + x1 sin], angle = position * inv_freq.
// Angles, cos and sin are float32 and are not rounded to bf16.
#pragma once

#include "ops/cost.h"
#include "tensor/view.h"

namespace megatoken {

struct NormRope {
  View x;                  // [T, n * head_dim] projections of n heads, f32 or bf16
  View weight;             // [1, head_dim] dtype of x; absent: no norm
  View y;                  // [T, n * head_dim] dtype of x; may be x itself
  View positions;          // [T, 1] i32, position of the token inside its document
  View frequency_index;    // [T, 1] i32, row of inverse_frequency for this token; absent: row 0
  View inverse_frequency;  // [tables, head_dim / 2] f32
  float attention_factor = 1.0f;  // multiplies cos and sin (YaRN)
  float eps = 1e-6f;
  int64 head_dim = 0;
};

struct NormRopeBackward {
  NormRope forward;  // weight and tables as in the forward; x too where there is a norm (rotation alone is linear and
                     // needs no x); forward.y is unused
  View dy;           // [T, n * head_dim] f32 or bf16
  View dx;           // [T, n * head_dim] dtype of the forward; may be dy itself when the dtypes are equal
  View dweight;      // [1, head_dim] f32, added to; absent when there is no norm
};

void validate(const NormRope& op);
void validate(const NormRopeBackward& op);
Cost cost_of(const NormRope& op);
Cost cost_of(const NormRopeBackward& op);

}  // namespace megatoken
