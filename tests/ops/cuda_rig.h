// What the tests of the CUDA ops share.
#pragma once

#include "ops/op_cases.h"

namespace megatoken {

// The CUDA ops keep activations and weights in bf16. Cases whose name says float32 for those are refused by name.
inline bool needs_float32_storage(const std::string& name) {
  // Convert, accumulate, add_bias, bias_gradient and merge take float32; so do rows, which are moved as bytes. In the
  // others the first type in the name is the storage type, but for norm_rope_backward, where dy's stands before it.
  for (const char* op : {"gemm_f32", "rms_norm_f32", "rms_norm_backward_f32", "swiglu_f32", "swiglu_backward_f32",
                         "attention_forward_f32", "attention_backward_f32", "norm_rope_f32", "norm_rope_backward_f32_f32",
                         "norm_rope_backward_bf16_f32", "expert_swiglu_backward_f32", "grouped_gemm_f32"})
    if (name.rfind(op, 0) == 0) return true;
  return false;
}

// Cases whose tolerance leaves no room for another order of sums: float32 sums of a thousand terms in tensor cores, and
// the reference's own error in a plain sum of 200,001 squares. large_cuda_test and special_cuda_test have them.
inline bool needs_another_tolerance(const std::string& name) {
  return name.rfind("gemm_bf16_f32_2x700x1030", 0) == 0 || name == "sum_squares_200001";
}

}  // namespace megatoken
