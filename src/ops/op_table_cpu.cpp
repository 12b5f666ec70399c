#include "ops/op_table_cpu.h"

namespace megatoken {

const OpTable& cpu_op_table() {
  static const OpTable table = {
      .gemm = gemm_cpu,
      .rms_norm = rms_norm_cpu,
      .rms_norm_backward = rms_norm_backward_cpu,
      .norm_rope = norm_rope_cpu,
      .norm_rope_backward = norm_rope_backward_cpu,
      .swiglu = swiglu_cpu,
      .swiglu_backward = swiglu_backward_cpu,
      .embedding = embedding_cpu,
      .embedding_backward = embedding_backward_cpu,
      .gather_rows = gather_rows_cpu,
      .scatter_rows = scatter_rows_cpu,
      .convert = convert_cpu,
      .accumulate = accumulate_cpu,
      .add_bias = add_bias_cpu,
      .bias_gradient = bias_gradient_cpu,
      .fill_zero = fill_zero_cpu,
      .sum_squares = sum_squares_cpu,
      .cross_entropy = cross_entropy_cpu,
      .adamw = adamw_cpu,
      .attention_forward = attention_forward_cpu,
      .attention_merge = attention_merge_cpu,
      .attention_backward = attention_backward_cpu,
      .router = router_cpu,
      .router_backward = router_backward_cpu,
      .router_statistics = router_statistics_cpu,
      .balance_loss = balance_loss_cpu,
      .sort_by_expert = sort_by_expert_cpu,
      .combine_experts = combine_experts_cpu,
      .expert_swiglu_backward = expert_swiglu_backward_cpu,
      .sigmoid = sigmoid_cpu,
      .sigmoid_backward = sigmoid_backward_cpu,
      .grouped_gemm = grouped_gemm_cpu,
      .attention_forward_workspace = attention_forward_workspace_cpu,
      .attention_backward_workspace = attention_backward_workspace_cpu,
      .grouped_gemm_workspace = grouped_gemm_workspace_cpu,
  };
  return table;
}

}  // namespace megatoken
