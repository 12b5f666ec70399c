#include "attention/block_executor.h"

#include <algorithm>

namespace megatoken {
namespace {

AttentionMask mask_of(const AttentionBlock& block) { return block.causal ? AttentionMask::causal : AttentionMask::full; }

// Neighbours that cost the same are one loop, which the planner counts once.
bool alike(const AttentionBlock& a, const AttentionBlock& b) {
  return a.query_begin == b.query_begin && a.query_count == b.query_count && a.key_count == b.key_count &&
         a.causal == b.causal && a.first == b.first;
}

template <typename Visit>
void for_each_block(StepContext& ctx, const AttentionPhase& phase, Visit visit) {
  const auto& blocks = phase.blocks;
  for (std::size_t i = 0; i < blocks.size();) {
    std::size_t end = i + 1;
    while (end < blocks.size() && alike(blocks[i], blocks[end])) ++end;
    for (const int64 j : ctx.loop("attention block", static_cast<int64>(end - i), {.period = 1}))
      visit(blocks[i + static_cast<std::size_t>(j)]);
    i = end;
  }
}

}  // namespace

AttentionForwardBlocks::AttentionForwardBlocks(StepOps& ops, const SequencePart& part, const HeadShape& shape,
                                               const View& q, const View& o, const View& lse)
    : ops_(ops), part_(part), shape_(shape), q_(q), o_(o), lse_(lse) {
  const auto& queries = part.schedule.queries;
  if (std::any_of(queries.begin(), queries.end(), [](const QueryRange& r) { return !r.single; }))
    sum_ = ops.context().buffer("merged attention output", part.rows(), shape.query_cols(), DType::f32);
}

bool AttentionForwardBlocks::single(const AttentionBlock& block) const {
  for (const QueryRange& range : part_.schedule.queries)
    if (block.query_begin >= range.begin && block.query_begin < range.begin + range.count) return range.single;
  throw InternalError("attention block at row {} belongs to no query range", block.query_begin);
}

void AttentionForwardBlocks::visit(const AttentionPhase& phase, const View& k, const View& v) {
  auto& ctx = ops_.context();
  for_each_block(ctx, phase, [&](const AttentionBlock& block) {
    AttentionForward op;
    op.q = q_.row_range(block.query_begin, block.query_count);
    op.k = k.row_range(block.key_begin, block.key_count);
    op.v = v.row_range(block.key_begin, block.key_count);
    op.heads = shape_.heads;
    op.kv_heads = shape_.kv_heads;
    op.head_dim = shape_.head_dim;
    op.scale = shape_.scale;
    op.mask = mask_of(block);
    const View o = o_.row_range(block.query_begin, block.query_count);
    const View lse = lse_.col_range(block.query_begin, block.query_count);
    if (single(block)) {
      op.o = o;
      op.lse = lse;
      ops_.attention_forward("attention", op);
      return;
    }
    Buffer o_part = ctx.buffer("attention output of a block", block.query_count, shape_.query_cols(), o_.dtype);
    Buffer lse_part = ctx.buffer("log-sum-exp of a block", shape_.heads, block.query_count, DType::f32);
    op.o = o_part;
    op.lse = lse_part;
    ops_.attention_forward("attention", op);
    ops_.attention_merge("merge attention blocks", {o_part, lse_part, sum_.view().row_range(block.query_begin, block.query_count),
                                                    lse, shape_.heads, shape_.head_dim, block.first});
  });
}

void AttentionForwardBlocks::finish() {
  for (const QueryRange& range : part_.schedule.queries)
    if (!range.single)
      ops_.convert("round attention output",
                   {sum_.view().row_range(range.begin, range.count), o_.row_range(range.begin, range.count)});
  for (const auto& range : part_.schedule.padding) {
    ops_.fill_zero("zero padding", {o_.row_range(range.first, range.count)});
    ops_.fill_zero("zero padding", {lse_.col_range(range.first, range.count)});
  }
  sum_.reset();
}

void attention_backward_blocks(StepOps& ops, const AttentionPhase& phase, const HeadShape& shape,
                               const AttentionBackwardArguments& args) {
  for_each_block(ops.context(), phase, [&](const AttentionBlock& block) {
    AttentionBackward op;
    op.q = args.q.row_range(block.query_begin, block.query_count);
    op.o = args.o.row_range(block.query_begin, block.query_count);
    op.dout = args.dout.row_range(block.query_begin, block.query_count);
    op.lse = args.lse.col_range(block.query_begin, block.query_count);
    op.dq = args.dq.row_range(block.query_begin, block.query_count);
    op.k = args.k.row_range(block.key_begin, block.key_count);
    op.v = args.v.row_range(block.key_begin, block.key_count);
    op.dk = args.dk.row_range(block.key_begin, block.key_count);
    op.dv = args.dv.row_range(block.key_begin, block.key_count);
    op.heads = shape.heads;
    op.kv_heads = shape.kv_heads;
    op.head_dim = shape.head_dim;
    op.scale = shape.scale;
    op.mask = mask_of(block);
    ops.attention_backward("attention backward", op);
  });
}

}  // namespace megatoken
