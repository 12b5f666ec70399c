#include "parallel/bucket_traffic.h"

#include <algorithm>

#include <fmt/format.h>

namespace megatoken {
namespace {

// Buckets outside the layers are few, used once or twice a step, and each has its own size.
bool in_ring(int64 bucket, int64 first, int64 count) { return bucket >= first && bucket < first + count; }

int64 largest_padded(const ShardedParameters& parameters, int64 first, int64 count) {
  int64 largest = 0;
  for (int64 b = first; b < first + count; ++b) largest = std::max(largest, parameters.padded_elements(b));
  return largest;
}

const std::string& name_of(const ShardedParameters& parameters, int64 bucket) {
  return parameters.buckets()[static_cast<std::size_t>(bucket)].name;
}

}  // namespace

WeightGather::WeightGather(StepOps& ops, const ShardedParameters& parameters, Group* group, int64 first_layer,
                           int64 num_layers, int64 lead)
    : ops_(ops), parameters_(parameters), group_(group), first_layer_(first_layer), num_layers_(num_layers) {
  const bool host = parameters.places().weights == Place::host;
  if (num_layers == 0 || (parameters.shards() == 1 && !host)) return;
  const int64 elements = largest_padded(parameters, first_layer, num_layers);
  ring_ = ops.context().ring("gathered layer weights", lead + 1, 1, elements, parameters.dtype());
  if (host && parameters.shards() > 1)
    shard_ring_ =
        ops.context().ring("layer weights from host", lead + 1, 1, elements / parameters.shards(), parameters.dtype());
}

WeightGather::Handle WeightGather::start(int64 bucket) {
  auto& ctx = ops_.context();
  const View state = parameters_.weight(ctx, bucket);
  const bool host = parameters_.places().weights == Place::host;
  Handle handle;
  if (parameters_.shards() == 1 && !host) {
    handle.view = state;
    return handle;
  }
  const bool layer = in_ring(bucket, first_layer_, num_layers_);
  const int64 elements = parameters_.padded_elements(bucket);
  handle.buffer =
      layer ? ring_.acquire()
            : ctx.buffer("gathered weights of " + name_of(parameters_, bucket), 1, elements, parameters_.dtype());
  handle.view = handle.buffer.view().col_range(0, elements);
  if (parameters_.shards() == 1) {
    handle.ticket = ops_.copy(StreamId::h2d, "weights from host", state, handle.view);
    return handle;
  }
  View shard = state;
  Ticket fetched;
  if (host) {
    const int64 own = parameters_.shard_elements(bucket);
    handle.shard =
        layer ? shard_ring_.acquire()
              : ctx.buffer("weights from host of " + name_of(parameters_, bucket), 1, own, parameters_.dtype());
    shard = handle.shard.view().col_range(0, own);
    fetched = ops_.copy(StreamId::h2d, "weights from host", state, shard);
  }
  handle.ticket = ops_.all_gather("gather weights", group_, parameters_.shards(), shard, handle.view, {fetched});
  return handle;
}

View WeightGather::wait(Handle& handle) {
  ops_.context().wait(handle.ticket, "gathered weights");
  handle.shard.reset();
  return handle.view;
}

GradientReduce::GradientReduce(StepOps& ops, const ShardedParameters& parameters, Group* group, int64 first_layer,
                               int64 num_layers)
    : ops_(ops),
      parameters_(parameters),
      group_(group),
      first_layer_(first_layer),
      num_layers_(num_layers),
      host_(parameters.places().gradients == Place::host) {
  if (in_place() || num_layers == 0) return;
  auto& ctx = ops.context();
  const int64 elements = largest_padded(parameters, first_layer, num_layers);
  ring_ = ctx.ring("layer gradients", 2, 1, elements, DType::f32);
  if (parameters.shards() > 1)
    reduced_ = ctx.ring("reduced layer gradients", 2, 1, elements / parameters.shards(), DType::f32);
  if (host_ && parameters.shards() > 1)
    sums_ = ctx.ring("layer gradient sums", 2, 1, elements / parameters.shards(), DType::f32);
}

Buffer GradientReduce::buffer(Ring& ring, const char* name, int64 bucket, int64 elements) {
  if (in_ring(bucket, first_layer_, num_layers_)) return ring.acquire();
  return ops_.context().buffer(fmt::format("{} of {}", name, name_of(parameters_, bucket)), 1, elements, DType::f32);
}

GradientReduce::Handle GradientReduce::begin(int64 bucket) {
  auto& ctx = ops_.context();
  Handle handle;
  handle.bucket = bucket;
  if (in_place()) {
    handle.view = parameters_.gradient(ctx, bucket);
    return handle;
  }
  const int64 elements = parameters_.padded_elements(bucket);
  handle.buffer = buffer(ring_, "gradients", bucket, elements);
  handle.view = handle.buffer.view().col_range(0, elements);
  const auto fetch = [&](const View& to) {
    const auto sent = sent_.find(bucket);
    return ops_.copy(StreamId::h2d, "gradients from host", parameters_.gradient(ctx, bucket), to,
                     {sent == sent_.end() ? Ticket() : sent->second});
  };
  if (parameters_.shards() == 1) {  // goes on where the last micro-batch ended, as on the device
    ctx.wait(fetch(handle.view), "gradients from host");
    return handle;
  }
  ops_.fill_zero("zero gradients", {handle.view});
  if (host_) {
    const int64 own = parameters_.shard_elements(bucket);
    handle.sum = buffer(sums_, "gradient sums", bucket, own);
    handle.fetched = fetch(handle.sum.view().col_range(0, own));
  }
  return handle;
}

Ticket GradientReduce::end(Handle handle) {
  if (in_place()) return {};
  auto& ctx = ops_.context();
  const int64 elements = parameters_.shard_elements(handle.bucket);
  const View state = parameters_.gradient(ctx, handle.bucket);
  View sum = handle.view;
  Ticket done;
  if (parameters_.shards() > 1) {
    const Buffer slot = buffer(reduced_, "reduced gradients", handle.bucket, elements);
    const View reduced = slot.view().col_range(0, elements);
    ops_.reduce_scatter("reduce gradients", group_, parameters_.shards(), handle.view, reduced);
    sum = host_ ? handle.sum.view().col_range(0, elements) : state;
    const auto add = ops_.table().accumulate;
    const Accumulate op{reduced, sum};
    done = ctx.async(StreamId::exchange, "add reduced gradients", cost_of(op), {in(reduced), inout(sum)},
                     {handle.fetched}, ops_.kernel([=](Stream& s) { add(s, op); }));
  }
  if (!host_) return done;
  const Ticket sent = ops_.copy(StreamId::d2h, "gradients to host", sum, state, {done});
  if (!in_ring(handle.bucket, first_layer_, num_layers_)) sent_[handle.bucket] = sent;
  return sent;
}

}  // namespace megatoken
