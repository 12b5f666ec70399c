// Matrix product with float32 accumulation: d = op(a) op(b) + beta * c, where op transposes when asked.
// bf16 operands are exact in float32, so every backend computes the same products; only the order of sums differs.
#pragma once

#include "ops/cost.h"
#include "tensor/view.h"

namespace megatoken {

struct Gemm {
  View a;  // [M, K], or [K, M] with transpose_a; f32 or bf16
  View b;  // [K, N], or [N, K] with transpose_b; dtype of a
  View d;  // [M, N]; f32 or bf16
  View c;  // [M, N] addend of d's dtype, may be d itself; absent: no addend
  bool transpose_a = false;
  bool transpose_b = false;

  int64 m() const { return transpose_a ? a.cols : a.rows; }
  int64 k() const { return transpose_a ? a.rows : a.cols; }
  int64 n() const { return transpose_b ? b.rows : b.cols; }
};

// Throws InternalError when shapes or dtypes do not fit. m, n or k of 0 is legal: d = c (or 0 without c) when k = 0.
void validate(const Gemm& gemm);
Cost cost_of(const Gemm& gemm);

}  // namespace megatoken
