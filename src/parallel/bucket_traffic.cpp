#include "parallel/bucket_traffic.h"

#include <algorithm>

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
  if (parameters.shards() > 1 && num_layers > 0)
    ring_ = ops.context().ring("gathered layer weights", lead + 1,
                               1, largest_padded(parameters, first_layer, num_layers), parameters.dtype());
}

WeightGather::Handle WeightGather::start(int64 bucket) {
  auto& ctx = ops_.context();
  const View shard = parameters_.weight(ctx, bucket);
  Handle handle;
  if (parameters_.shards() == 1) {
    handle.view = shard;
    return handle;
  }
  const int64 elements = parameters_.padded_elements(bucket);
  handle.buffer = in_ring(bucket, first_layer_, num_layers_)
                      ? ring_.acquire()
                      : ctx.buffer("gathered weights of " + name_of(parameters_, bucket), 1, elements, parameters_.dtype());
  handle.view = handle.buffer.view().col_range(0, elements);
  handle.ticket = ops_.all_gather("gather weights", group_, parameters_.shards(), shard, handle.view);
  return handle;
}

View WeightGather::wait(const Handle& handle) {
  ops_.context().wait(handle.ticket, "gathered weights");
  return handle.view;
}

GradientReduce::GradientReduce(StepOps& ops, const ShardedParameters& parameters, Group* group, int64 first_layer,
                               int64 num_layers)
    : ops_(ops), parameters_(parameters), group_(group), first_layer_(first_layer), num_layers_(num_layers) {
  if (parameters.shards() == 1) return;
  auto& ctx = ops.context();
  if (num_layers > 0)
    ring_ = ctx.ring("layer gradients", 2, 1, largest_padded(parameters, first_layer, num_layers), DType::f32);
  if (num_layers > 0)
    reduced_ = ctx.ring("reduced layer gradients", 2, 1,
                        largest_padded(parameters, first_layer, num_layers) / parameters.shards(), DType::f32);
}

GradientReduce::Handle GradientReduce::begin(int64 bucket) {
  auto& ctx = ops_.context();
  Handle handle;
  handle.bucket = bucket;
  if (parameters_.shards() == 1) {
    handle.view = parameters_.gradient(ctx, bucket);
    return handle;
  }
  const int64 elements = parameters_.padded_elements(bucket);
  handle.buffer = in_ring(bucket, first_layer_, num_layers_)
                      ? ring_.acquire()
                      : ctx.buffer("gradients of " + name_of(parameters_, bucket), 1, elements, DType::f32);
  handle.view = handle.buffer.view().col_range(0, elements);
  ops_.fill_zero("zero gradients", {handle.view});
  return handle;
}

Ticket GradientReduce::end(Handle handle) {
  if (parameters_.shards() == 1) return {};
  auto& ctx = ops_.context();
  const int64 elements = parameters_.shard_elements(handle.bucket);
  Buffer slot = in_ring(handle.bucket, first_layer_, num_layers_)
                    ? reduced_.acquire()
                    : ctx.buffer("reduced gradients of " + name_of(parameters_, handle.bucket), 1, elements, DType::f32);
  const View reduced = slot.view().col_range(0, elements);
  const View sum = parameters_.gradient(ctx, handle.bucket);
  ops_.reduce_scatter("reduce gradients", group_, parameters_.shards(), handle.view, reduced);
  const auto add = ops_.table().accumulate;
  const Accumulate op{reduced, sum};
  return ctx.async(StreamId::exchange, "add reduced gradients", cost_of(op), {in(reduced), inout(sum)}, {},
            [=](Stream& s) { add(s, op); });
}

}  // namespace megatoken
