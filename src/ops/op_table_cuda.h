// The CUDA kernels, each defined in its op's *_cuda file; the program calls them through cuda_op_table(). Each enqueues
// its work on the stream, whichever of a device's streams it is.
#pragma once

#include "ops/attention_room.h"
#include "ops/grouped_room.h"
#include "ops/op_table.h"

namespace megatoken {

void gemm_cuda(Stream& stream, const Gemm& op);
void rms_norm_cuda(Stream& stream, const RmsNorm& op);
void rms_norm_backward_cuda(Stream& stream, const RmsNormBackward& op);
void norm_rope_cuda(Stream& stream, const NormRope& op);
void norm_rope_backward_cuda(Stream& stream, const NormRopeBackward& op);
void swiglu_cuda(Stream& stream, const Swiglu& op);
void swiglu_backward_cuda(Stream& stream, const SwigluBackward& op);
void embedding_cuda(Stream& stream, const Embedding& op);
void embedding_backward_cuda(Stream& stream, const EmbeddingBackward& op);
void gather_rows_cuda(Stream& stream, const GatherRows& op);
void scatter_rows_cuda(Stream& stream, const ScatterRows& op);
void convert_cuda(Stream& stream, const Convert& op);
void accumulate_cuda(Stream& stream, const Accumulate& op);
void add_bias_cuda(Stream& stream, const AddBias& op);
void bias_gradient_cuda(Stream& stream, const BiasGradient& op);
void fill_zero_cuda(Stream& stream, const FillZero& op);
void sum_squares_cuda(Stream& stream, const SumSquares& op);
void cross_entropy_cuda(Stream& stream, const CrossEntropy& op);
void adamw_cuda(Stream& stream, const Adamw& op);
void attention_forward_cuda(Stream& stream, const AttentionForward& op);
void attention_merge_cuda(Stream& stream, const AttentionMerge& op);
void attention_backward_cuda(Stream& stream, const AttentionBackward& op);
void router_cuda(Stream& stream, const Router& op);
void router_backward_cuda(Stream& stream, const RouterBackward& op);
void router_statistics_cuda(Stream& stream, const RouterStatistics& op);
void balance_loss_cuda(Stream& stream, const BalanceLoss& op);
void sort_by_expert_cuda(Stream& stream, const SortByExpert& op);
void combine_experts_cuda(Stream& stream, const CombineExperts& op);
void expert_swiglu_backward_cuda(Stream& stream, const ExpertSwigluBackward& op);
void sigmoid_cuda(Stream& stream, const Sigmoid& op);
void sigmoid_backward_cuda(Stream& stream, const SigmoidBackward& op);
void grouped_gemm_cuda(Stream& stream, const GroupedGemm& op);

}  // namespace megatoken
