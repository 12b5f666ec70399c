// The CUDA kernels, each defined in its op's *_cuda file; the program calls them through cuda_op_table(). Each enqueues
// its work on the stream, whichever of a device's streams it is.
#pragma once

#include "ops/attention_room.h"
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

}  // namespace megatoken
