// What stands around the products of a sparse layer. The T x k assignments of a tile's tokens (token t's s-th expert is
// assignment t k + s) are sorted by expert, stably, so that each expert's rows lie together: expert e has sorted rows
// [offsets[e], offsets[e + 1]), perhaps none. Shapes depend on T and k alone; counts and offsets stay on the device.
#pragma once

#include "ops/cost.h"
#include "tensor/view.h"

namespace megatoken {

struct SortByExpert {
  View experts;    // [T, k] i32, each in [0, E)
  View offsets;    // [1, E + 1] i32; the last is T k
  View source;     // [T k, 1] i32: the token of each sorted row
  View position;   // [T, k] i32: the sorted row of each assignment
  View workspace;  // [1, sort_by_expert_workspace] u8
};
int64 sort_by_expert_workspace(int64 assignments, int64 experts);

// out[t] = addend[t] + sum_s weights[t, s] rows[position[t, s]], summed in float32 in the order of s.
struct CombineExperts {
  View rows;      // [T k, H] f32 or bf16
  View position;  // [T, k] i32; absent: k is 1 and row t is token t's
  View weights;   // [T, k] f32; absent: 1
  View addend;    // [T, H] dtype of out, may be out itself; absent: 0
  View out;       // [T, H] f32 or bf16
};

// Backward of w * (silu(gate) up W) with respect to gate, up and w, given d = dout W (not weighted), row by row:
//   act = silu(gate) up; dw = act . d; (gate, up) <- w times the gradient of act along d; d <- w act,
// so that dout^T (w act) is W's gradient and the product with W need not be computed again.
struct ExpertSwigluBackward {
  View gate_up;   // [M, 2I] gate then up, f32 or bf16; overwritten by its gradient
  View dact;      // [M, I] dtype of gate_up; overwritten by w act
  View position;  // [T, k] i32, T k = M; absent: k is 1 and row t is token t's
  View weights;   // [T, k] f32
  View dweights;  // [T, k] f32
};

struct Sigmoid {
  View x;  // [T, N] f32
  View y;  // [T, N] f32, may be x itself
};

struct SigmoidBackward {  // dx = dy y (1 - y)
  View y;                 // [T, N] f32
  View dy;                // [T, N] f32
  View dx;                // [T, N] f32 or bf16
};

void validate(const SortByExpert& op);
void validate(const CombineExperts& op);
void validate(const ExpertSwigluBackward& op);
void validate(const Sigmoid& op);
void validate(const SigmoidBackward& op);
Cost cost_of(const SortByExpert& op);
Cost cost_of(const CombineExperts& op);
Cost cost_of(const ExpertSwigluBackward& op);
Cost cost_of(const Sigmoid& op);
Cost cost_of(const SigmoidBackward& op);

}  // namespace megatoken
