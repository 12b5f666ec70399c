// The ops of one device. Each is called inside a task of a stream of that device: on the CPU it has run when it returns,
// on CUDA it is enqueued. All arguments are validated before anything is written. Ops with zero rows do nothing.
#pragma once

#include "device/device.h"
#include "ops/adamw.h"
#include "ops/attention_block.h"
#include "ops/cross_entropy.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/experts.h"
#include "ops/gemm.h"
#include "ops/grouped_gemm.h"
#include "ops/norm_rope.h"
#include "ops/rms_norm.h"
#include "ops/router.h"
#include "ops/rows.h"
#include "ops/swiglu.h"

namespace megatoken {

struct OpTable {
  void (*gemm)(Stream&, const Gemm&);
  void (*rms_norm)(Stream&, const RmsNorm&);
  void (*rms_norm_backward)(Stream&, const RmsNormBackward&);
  void (*norm_rope)(Stream&, const NormRope&);
  void (*norm_rope_backward)(Stream&, const NormRopeBackward&);
  void (*swiglu)(Stream&, const Swiglu&);
  void (*swiglu_backward)(Stream&, const SwigluBackward&);
  void (*embedding)(Stream&, const Embedding&);
  void (*embedding_backward)(Stream&, const EmbeddingBackward&);
  void (*gather_rows)(Stream&, const GatherRows&);
  void (*scatter_rows)(Stream&, const ScatterRows&);
  void (*convert)(Stream&, const Convert&);
  void (*accumulate)(Stream&, const Accumulate&);
  void (*add_bias)(Stream&, const AddBias&);
  void (*bias_gradient)(Stream&, const BiasGradient&);
  void (*fill_zero)(Stream&, const FillZero&);
  void (*sum_squares)(Stream&, const SumSquares&);
  void (*cross_entropy)(Stream&, const CrossEntropy&);
  void (*adamw)(Stream&, const Adamw&);
  void (*attention_forward)(Stream&, const AttentionForward&);
  void (*attention_merge)(Stream&, const AttentionMerge&);
  void (*attention_backward)(Stream&, const AttentionBackward&);
  void (*router)(Stream&, const Router&);
  void (*router_backward)(Stream&, const RouterBackward&);
  void (*router_statistics)(Stream&, const RouterStatistics&);
  void (*balance_loss)(Stream&, const BalanceLoss&);
  void (*sort_by_expert)(Stream&, const SortByExpert&);
  void (*combine_experts)(Stream&, const CombineExperts&);
  void (*expert_swiglu_backward)(Stream&, const ExpertSwigluBackward&);
  void (*sigmoid)(Stream&, const Sigmoid&);
  void (*sigmoid_backward)(Stream&, const SigmoidBackward&);
  void (*grouped_gemm)(Stream&, const GroupedGemm&);

  // Bytes of scratch the op needs in its workspace view; pure, never decreasing in Sq and Sk, or in rows.
  int64 (*attention_forward_workspace)(const AttentionForward&);
  int64 (*attention_backward_workspace)(const AttentionBackward&);
  int64 (*grouped_gemm_workspace)(const GroupedGemm&);
};

const OpTable& cpu_op_table();
// Throws FitError when the program was built without CUDA.
const OpTable& cuda_op_table();

// What is known of a device's ops without a device or its build: the workspaces, no kernels. For counting steps.
const OpTable& counting_op_table(bool on_cuda);

}  // namespace megatoken
