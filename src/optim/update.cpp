#include "optim/update.h"

namespace megatoken {
namespace {

struct Piece {
  int64 begin;
  int64 count;
  bool decay;
};

// A bucket's shard as few pieces of equal treatment. Alignment gaps hold zeros and stay zero: they join the piece before.
std::vector<Piece> pieces_of(const ShardedParameters& parameters, int64 bucket) {
  std::vector<Piece> pieces;
  for (const auto& span : parameters.spans(bucket)) {
    const int64 end = span.offset_in_shard + span.count;
    if (!pieces.empty() && pieces.back().decay == span.parameter->decay)
      pieces.back().count = end - pieces.back().begin;
    else
      pieces.push_back({span.offset_in_shard, span.count, span.parameter->decay});
  }
  return pieces;
}

int64 num_buckets(const ShardedParameters& parameters) { return static_cast<int64>(parameters.buckets().size()); }

}  // namespace

double gradient_sum_squares(StepOps& ops, const ShardedParameters& parameters) {
  auto& ctx = ops.context();
  double result = 0;
  {
    Buffer sum = ctx.buffer("gradient sum of squares", 1, 1, DType::f64);
    ops.fill_zero("zero gradient sum of squares", {sum});
    for (const int64 b : ctx.loop("bucket", num_buckets(parameters), {.collapse = false}))
      ops.sum_squares("gradient sum of squares", {parameters.gradient(ctx, b), sum});
    ops.copy(StreamId::d2h, "gradient sum of squares", sum,
             ctx.external("host gradient sum of squares", 1, 1, DType::f64, &result, Place::host));
  }
  ctx.finish();
  return result;
}

void reduce_replicas(StepOps& ops, const ShardedParameters& parameters, Group* group, int64 replicas) {
  if (replicas == 1) return;
  auto& ctx = ops.context();
  for (const int64 b : ctx.loop("bucket", num_buckets(parameters), {.collapse = false})) {
    const View gradient = parameters.gradient(ctx, b);
    const Cost cost{CostKind::exchange, 0, 2.0 * static_cast<double>(gradient.bytes()) * static_cast<double>(replicas - 1) /
                                               static_cast<double>(replicas)};
    ctx.async(StreamId::exchange, "reduce gradients of replicas", cost, {inout(gradient)}, {},
              [=](Stream& s) { group->all_reduce(s, gradient.as<float>(), gradient.elements()); });
  }
  ctx.finish();
}

void apply_update(StepOps& ops, const ShardedParameters& parameters, const UpdateSettings& settings) {
  auto& ctx = ops.context();
  for (const int64 b : ctx.loop("bucket", num_buckets(parameters), {.collapse = false})) {
    const View gradient = parameters.gradient(ctx, b), weight = parameters.weight(ctx, b),
               remainder = parameters.remainder(ctx, b), exp_avg = parameters.exp_avg(ctx, b),
               exp_avg_sq = parameters.exp_avg_sq(ctx, b);
    for (const Piece& piece : pieces_of(parameters, b)) {
      const auto part = [&](const View& v) { return v.absent() ? v : v.col_range(piece.begin, piece.count); };
      Adamw op;
      op.weight = part(weight);
      op.remainder = part(remainder);
      op.grad = part(gradient);
      op.exp_avg = part(exp_avg);
      op.exp_avg_sq = part(exp_avg_sq);
      op.gradient_scale = static_cast<float>(settings.gradient_scale);
      op.lr = static_cast<float>(settings.lr);
      op.beta1 = static_cast<float>(settings.beta1);
      op.beta2 = static_cast<float>(settings.beta2);
      op.eps = static_cast<float>(settings.eps);
      op.weight_decay = piece.decay ? static_cast<float>(settings.weight_decay) : 0.0f;
      op.step = settings.step;
      ops.adamw("adamw", op);
    }
    ops.fill_zero("zero gradients", {gradient});
  }
  ctx.finish();
}

}  // namespace megatoken
