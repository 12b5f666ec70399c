// Products of G experts in one call: rows sorted by expert (ops/experts.h) meet their expert's matrix. float32
// accumulation. An expert without rows is left out; all rows may be one expert's. Sizes of groups are read on the
// device.
#pragma once

#include "ops/cost.h"
#include "tensor/view.h"

namespace megatoken {

enum class GroupedProduct {
  forward,          // d[r] = a[r] b_e^T      a [M, K], b [G * N, K], d [M, N]
  input_gradient,   // d[r] = a[r] b_e        a [M, N], b [G * N, K], d [M, K]
  weight_gradient,  // d_e += a_e^T b_e       a [M, N], b [M, K], d [G * N, K] f32, rows a_e and b_e of expert e
};

struct GroupedGemm {
  GroupedProduct product = GroupedProduct::forward;
  View a;          // f32 or bf16, rows strided
  View b;          // dtype of a, rows strided
  View d;          // forward, input gradient: dtype of a
  View offsets;    // [1, G + 1] i32, ascending from 0 to M
  View workspace;  // [1, n] u8, 256-byte aligned, n at least the op table's grouped_gemm_workspace

  int64 groups() const { return offsets.cols - 1; }
  int64 rows() const { return a.rows; }
  int64 n() const;
  int64 k() const;
};

void validate(const GroupedGemm& op);
// Rows times weights as one product; all experts' weights are read (and of a gradient written) once.
Cost cost_of(const GroupedGemm& op);

}  // namespace megatoken
