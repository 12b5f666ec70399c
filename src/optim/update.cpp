#include "optim/update.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace megatoken {
namespace {

struct Piece {
  int64 begin;
  int64 count;
  bool decay;
};

// A bucket's shard as few pieces of equal treatment. Alignment gaps hold zeros and stay zero: they join the piece
// before.
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

// Elements worked on at a time where state is streamed: 128 MiB of each float32 array.
constexpr int64 kUpdateTile = int64{1} << 25;

enum StateArray : std::size_t { kWeight, kRemainder, kGradient, kExpAvg, kExpAvgSq, kArrays };
constexpr const char* kNames[kArrays] = {"weights", "master remainders", "gradients", "first moments",
                                         "second moments"};

using StateViews = std::array<View, kArrays>;

// The state one tile after the other: views of the state itself, or, of arrays that live in host memory, buffers that
// the next tile is copied into while this one is worked on and the last one is on its way back.
class StateStream {
 public:
  struct Tile {
    int64 bucket = 0, begin = 0, count = 0;
    StateViews views;  // [1, count]; absent when not used
    std::array<Buffer, kArrays> buffers;
    Ticket ticket;
  };

  // used: which arrays are worked on.
  StateStream(StepOps& ops, const ShardedParameters& parameters, std::initializer_list<StateArray> used)
      : ops_(ops), parameters_(parameters) {
    for (const StateArray a : used) used_[a] = a != kRemainder || parameters.dtype() == DType::bf16;
    int64 largest = 0;
    for (int64 b = 0; b < num_buckets(parameters); ++b) largest = std::max(largest, parameters.shard_elements(b));
    constexpr int64 kDepth = 3;
    for (std::size_t a = 0; a < kArrays; ++a) {
      if (!streams(a)) continue;
      streams_any_ = true;
      rings_[a] = ops.context().ring(fmt::format("streamed {}", kNames[a]), kDepth, 1, std::min(kUpdateTile, largest),
                                     dtype(a));
    }
  }

  // Calls work(tile) for each tile of a bucket; written: what goes back to the host.
  template <typename Work>
  void run(std::initializer_list<StateArray> written, Work work) {
    auto& ctx = ops_.context();
    for (const int64 b : ctx.loop("bucket", num_buckets(parameters_), {.collapse = false}))
      for (int64 begin = 0; begin < parameters_.shard_elements(b); begin += kUpdateTile) {
        const Tile tile = next(b, begin);
        work(tile);
        for (const StateArray a : written)
          if (streams(a)) ops_.copy(StreamId::d2h, fmt::format("{} to host", kNames[a]), tile.views[a], state(tile)[a]);
      }
  }

 private:
  Place place(std::size_t a) const {
    const StatePlaces& places = parameters_.places();
    return a == kWeight ? places.weights : a == kGradient ? places.gradients : places.optimizer;
  }
  bool streams(std::size_t a) const { return used_[a] && place(a) == Place::host; }
  DType dtype(std::size_t a) const {
    return a == kWeight ? parameters_.dtype() : a == kRemainder ? DType::u16 : DType::f32;
  }

  StateViews state(const Tile& tile) const {
    auto& ctx = ops_.context();
    const auto part = [&](const View& v) { return v.absent() ? v : v.col_range(tile.begin, tile.count); };
    StateViews views;
    if (used_[kWeight]) views[kWeight] = part(parameters_.weight(ctx, tile.bucket));
    if (used_[kRemainder]) views[kRemainder] = part(parameters_.remainder(ctx, tile.bucket));
    if (used_[kGradient]) views[kGradient] = part(parameters_.gradient(ctx, tile.bucket));
    if (used_[kExpAvg]) views[kExpAvg] = part(parameters_.exp_avg(ctx, tile.bucket));
    if (used_[kExpAvgSq]) views[kExpAvgSq] = part(parameters_.exp_avg_sq(ctx, tile.bucket));
    return views;
  }

  Tile fetch(int64 bucket, int64 begin) {
    Tile tile;
    tile.bucket = bucket;
    tile.begin = begin;
    tile.count = std::min(kUpdateTile, parameters_.shard_elements(bucket) - begin);
    tile.views = state(tile);
    for (std::size_t a = 0; a < kArrays; ++a) {
      if (!streams(a)) continue;
      tile.buffers[a] = rings_[a].acquire();
      const View here = tile.buffers[a].view().col_range(0, tile.count);
      tile.ticket = ops_.copy(StreamId::h2d, fmt::format("{} from host", kNames[a]), tile.views[a], here);
      tile.views[a] = here;
    }
    return tile;
  }

  Tile next(int64 bucket, int64 begin) {
    if (!streams_any_) return fetch(bucket, begin);
    Tile tile = ahead_.count > 0 ? std::move(ahead_) : fetch(bucket, begin);
    ahead_ = Tile();
    int64 following = begin + kUpdateTile;
    if (following >= parameters_.shard_elements(bucket)) {
      ++bucket;
      following = 0;
    }
    if (bucket < num_buckets(parameters_)) ahead_ = fetch(bucket, following);
    ops_.context().wait(tile.ticket, "streamed state");
    return tile;
  }

  StepOps& ops_;
  const ShardedParameters& parameters_;
  std::array<bool, kArrays> used_{};
  bool streams_any_ = false;
  std::array<Ring, kArrays> rings_;
  Tile ahead_;
};

}  // namespace

double gradient_sum_squares(StepOps& ops, const ShardedParameters& parameters) {
  auto& ctx = ops.context();
  double result = 0;
  {
    Buffer sum = ctx.buffer("gradient sum of squares", 1, 1, DType::f64);
    ops.fill_zero("zero gradient sum of squares", {sum});
    StateStream(ops, parameters, {kGradient}).run({}, [&](const StateStream::Tile& tile) {
      ops.sum_squares("gradient sum of squares", {tile.views[kGradient], sum});
    });
    ops.copy(StreamId::d2h, "gradient sum of squares", sum,
             ctx.external("host gradient sum of squares", 1, 1, DType::f64, &result, Place::host));
  }
  ctx.finish();
  return result;
}

void reduce_replicas(StepOps& ops, const ShardedParameters& parameters, Group* group, int64 replicas) {
  if (replicas == 1) return;
  auto& ctx = ops.context();
  StateStream(ops, parameters, {kGradient}).run({kGradient}, [&](const StateStream::Tile& tile) {
    const View gradient = tile.views[kGradient];
    const Cost cost{CostKind::exchange, 0,
                    2.0 * static_cast<double>(gradient.bytes()) * static_cast<double>(replicas - 1) /
                        static_cast<double>(replicas)};
    const Ticket reduced =
        ctx.async(StreamId::exchange, "reduce gradients of replicas", cost, {inout(gradient)}, {},
                  [=](Stream& s) { group->all_reduce(s, gradient.as<float>(), gradient.elements()); });
    if (parameters.places().gradients == Place::host) ctx.wait(reduced, "gradients of replicas");
  });
  ctx.finish();
}

void apply_update(StepOps& ops, const ShardedParameters& parameters, const UpdateSettings& settings) {
  StateStream(ops, parameters, {kWeight, kRemainder, kGradient, kExpAvg, kExpAvgSq})
      .run({kWeight, kRemainder, kGradient, kExpAvg, kExpAvgSq}, [&](const StateStream::Tile& tile) {
        for (const Piece& piece : pieces_of(parameters, tile.bucket)) {
          const int64 from = std::max(tile.begin, piece.begin);
          const int64 to = std::min(tile.begin + tile.count, piece.begin + piece.count);
          if (from >= to) continue;
          const auto part = [&](StateArray a) {
            const View& v = tile.views[a];
            return v.absent() ? v : v.col_range(from - tile.begin, to - from);
          };
          Adamw op;
          op.weight = part(kWeight);
          op.remainder = part(kRemainder);
          op.grad = part(kGradient);
          op.exp_avg = part(kExpAvg);
          op.exp_avg_sq = part(kExpAvgSq);
          op.gradient_scale = static_cast<float>(settings.gradient_scale);
          op.lr = static_cast<float>(settings.lr);
          op.beta1 = static_cast<float>(settings.beta1);
          op.beta2 = static_cast<float>(settings.beta2);
          op.eps = static_cast<float>(settings.eps);
          op.weight_decay = piece.decay ? static_cast<float>(settings.weight_decay) : 0.0f;
          op.step = settings.step;
          ops.adamw("adamw", op);
        }
        ops.fill_zero("zero gradients", {tile.views[kGradient]});
      });
  ops.context().finish();
}

}  // namespace megatoken
