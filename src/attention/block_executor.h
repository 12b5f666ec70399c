// Runs an attention schedule block by block for one head group. Where a query range meets a single block the kernel
// writes the result itself; otherwise partial results are merged in float32 through their log-sum-exp.
#pragma once

#include "attention/sequence_part.h"
#include "step/step_ops.h"

namespace megatoken {

// Usage: construct; visit() once for each phase in order; finish().
class AttentionForwardBlocks {
 public:
  // q [rows, query_cols]; o [rows, query_cols] dtype of q; lse [heads, rows] f32. Both are written whole, padding rows with 0.
  AttentionForwardBlocks(StepOps& ops, const SequencePart& part, const HeadShape& shape, const View& q, const View& o,
                         const View& lse);
  void visit(const AttentionPhase& phase, const View& k, const View& v);
  void finish();

 private:
  bool single(const AttentionBlock& block) const;

  StepOps& ops_;
  const SequencePart& part_;
  HeadShape shape_;
  View q_, o_, lse_;
  Buffer sum_;  // [rows, query_cols] f32, where any range is merged
};

// Adds dq, dk, dv of one phase's blocks to float32 sums that the caller has zeroed.
struct AttentionBackwardArguments {
  View q, o, dout, lse;  // o merged over all blocks, lse likewise
  View k, v;             // resident keys of the phase
  View dq, dk, dv;
};
void attention_backward_blocks(StepOps& ops, const AttentionPhase& phase, const HeadShape& shape,
                               const AttentionBackwardArguments& args);

}  // namespace megatoken
