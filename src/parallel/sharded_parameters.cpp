#include "parallel/sharded_parameters.h"

#include <algorithm>

#include "ops/adamw.h"

namespace megatoken {

ShardedParameters::ShardedParameters(std::vector<BucketSpec> buckets, DType dtype, int64 shards, int64 shard_rank,
                                     Device* device)
    : buckets_(std::move(buckets)), dtype_(dtype), shards_(shards), shard_rank_(shard_rank) {
  check(dtype == DType::f32 || dtype == DType::bf16, "weights in {}", name_of(dtype));
  check(shards >= 1 && shard_rank >= 0 && shard_rank < shards, "shard {} of {}", shard_rank, shards);
  if (device == nullptr) return;
  const auto stream = device->create_stream(StreamMode::in_order_inline);
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    memory_.push_back(device->allocate(layout(static_cast<int64>(b)).bytes, "training state of " + buckets_[b].name));
    std::byte* const base = memory_.back().data();
    const int64 bytes = memory_.back().bytes();
    stream->submit([=](Stream& s) { s.fill_zero(base, bytes); });
  }
  stream->synchronize();
}

int64 ShardedParameters::shard_elements(int64 bucket) const {
  const int64 unit = shards_ * BucketSpec::kAlignment;
  return (buckets_[static_cast<std::size_t>(bucket)].elements + unit - 1) / unit * BucketSpec::kAlignment;
}

ShardedParameters::Layout ShardedParameters::layout(int64 bucket) const {
  const int64 n = shard_elements(bucket);
  Layout l{};
  int64 at = 0;
  const auto place = [&](int64 bytes) {
    const int64 begin = at;
    at = (at + bytes + 255) / 256 * 256;
    return begin;
  };
  l.weight = place(n * size_of(dtype_));
  l.remainder = dtype_ == DType::bf16 ? place(n * 2) : at;
  l.gradient = place(n * 4);
  l.exp_avg = place(n * 4);
  l.exp_avg_sq = place(n * 4);
  l.bytes = at;
  return l;
}

std::byte* ShardedParameters::data(int64 bucket, int64 offset) const {
  return memory_.empty() ? nullptr : memory_[static_cast<std::size_t>(bucket)].data() + offset;
}

View ShardedParameters::part(StepContext& ctx, const char* what, int64 bucket, int64 offset, DType dtype) const {
  return ctx.external(fmt::format("{} of {}", what, buckets_[static_cast<std::size_t>(bucket)].name), 1,
                      shard_elements(bucket), dtype, data(bucket, offset));
}

View ShardedParameters::weight(StepContext& ctx, int64 bucket) const {
  return part(ctx, "weights", bucket, layout(bucket).weight, dtype_);
}
View ShardedParameters::remainder(StepContext& ctx, int64 bucket) const {
  if (dtype_ == DType::f32) return View();
  return part(ctx, "master remainders", bucket, layout(bucket).remainder, DType::u16);
}
View ShardedParameters::gradient(StepContext& ctx, int64 bucket) const {
  return part(ctx, "gradients", bucket, layout(bucket).gradient, DType::f32);
}
View ShardedParameters::exp_avg(StepContext& ctx, int64 bucket) const {
  return part(ctx, "first moments", bucket, layout(bucket).exp_avg, DType::f32);
}
View ShardedParameters::exp_avg_sq(StepContext& ctx, int64 bucket) const {
  return part(ctx, "second moments", bucket, layout(bucket).exp_avg_sq, DType::f32);
}

namespace {

void copy_now(Stream& stream, void* to, const void* from, int64 bytes) {
  if (bytes == 0) return;
  stream.submit([=](Stream& s) { s.copy(to, from, bytes); });
  stream.synchronize();
}

}  // namespace

void ShardedParameters::read(Stream& stream, StateKind kind, int64 bucket, int64 first, int64 count, float* to) const {
  const Layout l = layout(bucket);
  check(first >= 0 && first + count <= shard_elements(bucket), "elements {}+{} of bucket {}", first, count, bucket);
  if (kind == StateKind::master && dtype_ == DType::bf16) {
    std::vector<std::uint16_t> weight(static_cast<std::size_t>(count)), low(static_cast<std::size_t>(count));
    copy_now(stream, weight.data(), data(bucket, l.weight + first * 2), count * 2);
    copy_now(stream, low.data(), data(bucket, l.remainder + first * 2), count * 2);
    for (std::size_t i = 0; i < weight.size(); ++i) to[i] = join_master({bf16::from_bits(weight[i]), low[i]});
    return;
  }
  const int64 base = kind == StateKind::master     ? l.weight
                     : kind == StateKind::gradient ? l.gradient
                     : kind == StateKind::exp_avg  ? l.exp_avg
                                                   : l.exp_avg_sq;
  copy_now(stream, to, data(bucket, base + first * 4), count * 4);
}

void ShardedParameters::write(Stream& stream, StateKind kind, int64 bucket, int64 first, int64 count, const float* from) {
  const Layout l = layout(bucket);
  check(first >= 0 && first + count <= shard_elements(bucket), "elements {}+{} of bucket {}", first, count, bucket);
  if (kind == StateKind::master && dtype_ == DType::bf16) {
    std::vector<std::uint16_t> weight(static_cast<std::size_t>(count)), low(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const SplitMaster split = split_master(from[i]);
      weight[i] = split.weight.bits;
      low[i] = split.remainder;
    }
    copy_now(stream, data(bucket, l.weight + first * 2), weight.data(), count * 2);
    copy_now(stream, data(bucket, l.remainder + first * 2), low.data(), count * 2);
    return;
  }
  const int64 base = kind == StateKind::master     ? l.weight
                     : kind == StateKind::gradient ? l.gradient
                     : kind == StateKind::exp_avg  ? l.exp_avg
                                                   : l.exp_avg_sq;
  copy_now(stream, data(bucket, base + first * 4), from, count * 4);
}

std::vector<ShardedParameters::Storage> ShardedParameters::storage() const {
  Layout total{};
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Layout l = layout(static_cast<int64>(b));
    total.weight += l.remainder - l.weight;
    total.remainder += l.gradient - l.remainder;
    total.gradient += l.exp_avg - l.gradient;
    total.exp_avg += l.exp_avg_sq - l.exp_avg;
    total.exp_avg_sq += l.bytes - l.exp_avg_sq;
  }
  std::vector<Storage> found{{"weights", total.weight}};
  if (dtype_ == DType::bf16) found.push_back({"master remainders", total.remainder});
  found.push_back({"gradients", total.gradient});
  found.push_back({"first moments", total.exp_avg});
  found.push_back({"second moments", total.exp_avg_sq});
  return found;
}

int64 ShardedParameters::storage_bytes() const {
  int64 bytes = 0;
  for (const Storage& s : storage()) bytes += s.bytes;
  return bytes;
}

std::vector<ShardedParameters::Span> ShardedParameters::spans(int64 bucket) const {
  std::vector<Span> found;
  const int64 begin = shard_begin(bucket);
  const int64 end = begin + shard_elements(bucket);
  for (const ParameterSpec& p : buckets_[static_cast<std::size_t>(bucket)].parameters) {
    const int64 from = std::max(begin, p.offset);
    const int64 to = std::min(end, p.offset + p.elements());
    if (from < to) found.push_back({&p, from - p.offset, to - from, from - begin});
  }
  return found;
}

}  // namespace megatoken
