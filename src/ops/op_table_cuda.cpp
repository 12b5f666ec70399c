#include "ops/op_table_cuda.h"

namespace megatoken {

const OpTable& cuda_op_table() {
  static const OpTable table = {
      .gemm = gemm_cuda,
      .rms_norm = rms_norm_cuda,
      .rms_norm_backward = rms_norm_backward_cuda,
      .norm_rope = norm_rope_cuda,
      .norm_rope_backward = norm_rope_backward_cuda,
      .swiglu = swiglu_cuda,
      .swiglu_backward = swiglu_backward_cuda,
      .embedding = embedding_cuda,
      .embedding_backward = embedding_backward_cuda,
      .gather_rows = gather_rows_cuda,
      .scatter_rows = scatter_rows_cuda,
      .convert = convert_cuda,
      .accumulate = accumulate_cuda,
      .add_bias = add_bias_cuda,
      .bias_gradient = bias_gradient_cuda,
      .fill_zero = fill_zero_cuda,
      .sum_squares = sum_squares_cuda,
      .cross_entropy = cross_entropy_cuda,
      .adamw = adamw_cuda,
      .attention_forward = attention_forward_cuda,
      .attention_merge = attention_merge_cuda,
      .attention_backward = attention_backward_cuda,
      .router = router_cuda,
      .router_backward = router_backward_cuda,
      .router_statistics = router_statistics_cuda,
      .balance_loss = balance_loss_cuda,
      .sort_by_expert = sort_by_expert_cuda,
      .combine_experts = combine_experts_cuda,
      .expert_swiglu_backward = expert_swiglu_backward_cuda,
      .sigmoid = sigmoid_cuda,
      .sigmoid_backward = sigmoid_backward_cuda,
      .grouped_gemm = grouped_gemm_cuda,
      .attention_forward_workspace = attention_forward_workspace_cuda,
      .attention_backward_workspace = attention_backward_workspace_cuda,
      .grouped_gemm_workspace = grouped_gemm_workspace_cuda,
  };
  return table;
}

}  // namespace megatoken
