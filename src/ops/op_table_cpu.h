// The CPU kernels, each defined in its op's *_cpu.cpp; the program calls them through cpu_op_table().
#pragma once

#include "ops/op_table.h"

namespace megatoken {

void gemm_cpu(Stream& stream, const Gemm& op);
void rms_norm_cpu(Stream& stream, const RmsNorm& op);
void rms_norm_backward_cpu(Stream& stream, const RmsNormBackward& op);
void norm_rope_cpu(Stream& stream, const NormRope& op);
void norm_rope_backward_cpu(Stream& stream, const NormRopeBackward& op);
void swiglu_cpu(Stream& stream, const Swiglu& op);
void swiglu_backward_cpu(Stream& stream, const SwigluBackward& op);
void embedding_cpu(Stream& stream, const Embedding& op);
void embedding_backward_cpu(Stream& stream, const EmbeddingBackward& op);
void gather_rows_cpu(Stream& stream, const GatherRows& op);
void scatter_rows_cpu(Stream& stream, const ScatterRows& op);
void convert_cpu(Stream& stream, const Convert& op);
void accumulate_cpu(Stream& stream, const Accumulate& op);
void add_bias_cpu(Stream& stream, const AddBias& op);
void bias_gradient_cpu(Stream& stream, const BiasGradient& op);
void fill_zero_cpu(Stream& stream, const FillZero& op);
void sum_squares_cpu(Stream& stream, const SumSquares& op);
void cross_entropy_cpu(Stream& stream, const CrossEntropy& op);
void adamw_cpu(Stream& stream, const Adamw& op);
void attention_forward_cpu(Stream& stream, const AttentionForward& op);
void attention_merge_cpu(Stream& stream, const AttentionMerge& op);
void attention_backward_cpu(Stream& stream, const AttentionBackward& op);
void router_cpu(Stream& stream, const Router& op);
void router_backward_cpu(Stream& stream, const RouterBackward& op);
void router_statistics_cpu(Stream& stream, const RouterStatistics& op);
void balance_loss_cpu(Stream& stream, const BalanceLoss& op);
void sort_by_expert_cpu(Stream& stream, const SortByExpert& op);
void combine_experts_cpu(Stream& stream, const CombineExperts& op);
void expert_swiglu_backward_cpu(Stream& stream, const ExpertSwigluBackward& op);
void sigmoid_cpu(Stream& stream, const Sigmoid& op);
void sigmoid_backward_cpu(Stream& stream, const SigmoidBackward& op);
void grouped_gemm_cpu(Stream& stream, const GroupedGemm& op);
int64 attention_forward_workspace_cpu(const AttentionForward& op);
int64 attention_backward_workspace_cpu(const AttentionBackward& op);
int64 grouped_gemm_workspace_cpu(const GroupedGemm& op);

}  // namespace megatoken
