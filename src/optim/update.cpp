#include "optim/update.h"

#include <algorithm>
#include <optional>

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

// Elements updated at a time where moments are streamed: 128 MiB of each moment.
constexpr int64 kUpdateTile = int64{1} << 25;

// The moments of one tile after the other: views of the state itself, or, where it lives in host memory, buffers that the
// next tile is copied into while this one is updated and the last one is on its way back.
class MomentStream {
 public:
  struct Tile {
    View exp_avg, exp_avg_sq;
    Buffer first, second;
    Ticket ticket;
  };

  MomentStream(StepOps& ops, const ShardedParameters& parameters)
      : ops_(ops), parameters_(parameters), host_(parameters.places().moments == Place::host) {
    if (!host_) return;
    constexpr int64 kDepth = 3;
    int64 largest = 0;
    for (int64 b = 0; b < num_buckets(parameters); ++b) largest = std::max(largest, parameters.shard_elements(b));
    const int64 elements = std::min(kUpdateTile, largest);
    first_ = ops.context().ring("streamed first moments", kDepth, 1, elements, DType::f32);
    second_ = ops.context().ring("streamed second moments", kDepth, 1, elements, DType::f32);
  }

  Tile next(int64 bucket, int64 begin, int64 count) {
    if (!host_) return tile_of_state(bucket, begin, count);
    Tile tile = ahead_.first.held() ? std::move(ahead_) : fetch(bucket, begin, count);
    if (const auto following = after(bucket, begin + count))
      ahead_ = fetch(following->bucket, following->begin, following->count);
    ops_.context().wait(tile.ticket, "streamed moments");
    return tile;
  }

  void done(const Tile& tile, int64 bucket, int64 begin) {
    if (!host_) return;
    const Tile state = tile_of_state(bucket, begin, tile.exp_avg.cols);
    ops_.copy(StreamId::d2h, "first moments to host", tile.exp_avg, state.exp_avg);
    ops_.copy(StreamId::d2h, "second moments to host", tile.exp_avg_sq, state.exp_avg_sq);
  }

 private:
  struct Range {
    int64 bucket, begin, count;
  };
  std::optional<Range> after(int64 bucket, int64 begin) const {
    if (begin >= parameters_.shard_elements(bucket)) {
      ++bucket;
      begin = 0;
    }
    if (bucket >= num_buckets(parameters_)) return std::nullopt;
    return Range{bucket, begin, std::min(kUpdateTile, parameters_.shard_elements(bucket) - begin)};
  }

  Tile tile_of_state(int64 bucket, int64 begin, int64 count) const {
    auto& ctx = ops_.context();
    Tile tile;
    tile.exp_avg = parameters_.exp_avg(ctx, bucket).col_range(begin, count);
    tile.exp_avg_sq = parameters_.exp_avg_sq(ctx, bucket).col_range(begin, count);
    return tile;
  }

  Tile fetch(int64 bucket, int64 begin, int64 count) {
    const Tile state = tile_of_state(bucket, begin, count);
    Tile tile;
    tile.first = first_.acquire();
    tile.second = second_.acquire();
    tile.exp_avg = tile.first.view().col_range(0, count);
    tile.exp_avg_sq = tile.second.view().col_range(0, count);
    ops_.copy(StreamId::h2d, "first moments from host", state.exp_avg, tile.exp_avg);
    tile.ticket = ops_.copy(StreamId::h2d, "second moments from host", state.exp_avg_sq, tile.exp_avg_sq);
    return tile;
  }

  StepOps& ops_;
  const ShardedParameters& parameters_;
  bool host_;
  Ring first_, second_;
  Tile ahead_;
};

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
  {
    MomentStream moments(ops, parameters);
    for (const int64 b : ctx.loop("bucket", num_buckets(parameters), {.collapse = false})) {
      const View gradient = parameters.gradient(ctx, b), weight = parameters.weight(ctx, b),
                 remainder = parameters.remainder(ctx, b);
      for (int64 begin = 0; begin < parameters.shard_elements(b); begin += kUpdateTile) {
        const int64 end = std::min(begin + kUpdateTile, parameters.shard_elements(b));
        const MomentStream::Tile tile = moments.next(b, begin, end - begin);
        for (const Piece& piece : pieces_of(parameters, b)) {
          const int64 from = std::max(begin, piece.begin), to = std::min(end, piece.begin + piece.count);
          if (from >= to) continue;
          const auto part = [&](const View& v) { return v.absent() ? v : v.col_range(from, to - from); };
          Adamw op;
          op.weight = part(weight);
          op.remainder = part(remainder);
          op.grad = part(gradient);
          op.exp_avg = tile.exp_avg.col_range(from - begin, to - from);
          op.exp_avg_sq = tile.exp_avg_sq.col_range(from - begin, to - from);
          op.gradient_scale = static_cast<float>(settings.gradient_scale);
          op.lr = static_cast<float>(settings.lr);
          op.beta1 = static_cast<float>(settings.beta1);
          op.beta2 = static_cast<float>(settings.beta2);
          op.eps = static_cast<float>(settings.eps);
          op.weight_decay = piece.decay ? static_cast<float>(settings.weight_decay) : 0.0f;
          op.step = settings.step;
          ops.adamw("adamw", op);
        }
        moments.done(tile, b, begin);
      }
      ops.fill_zero("zero gradients", {gradient});
    }
  }
  ctx.finish();
}

}  // namespace megatoken
