#include "parallel/sharded_parameters.h"

#include <algorithm>

#include "ops/adamw.h"

namespace megatoken {

ShardedParameters::ShardedParameters(std::vector<BucketSpec> buckets, DType dtype, int64 shards, int64 shard_rank,
                                     Device* device, StatePlaces places)
    : buckets_(std::move(buckets)), dtype_(dtype), shards_(shards), shard_rank_(shard_rank), places_(places) {
  check(dtype == DType::f32 || dtype == DType::bf16, "weights in {}", name_of(dtype));
  check(shards >= 1 && shard_rank >= 0 && shard_rank < shards, "shard {} of {}", shard_rank, shards);
  if (device == nullptr) return;
  const auto stream = device->create_stream(StreamMode::in_order_inline);
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Layout l = layout(static_cast<int64>(b));
    const bool host = places_.moments == Place::host;
    memory_.push_back(device->allocate(host ? l.device_end : l.end, "training state of " + buckets_[b].name));
    if (host) host_moments_.push_back(device->allocate_host(l.end, "moments of " + buckets_[b].name));
    for (auto* memories : {&memory_, &host_moments_}) {
      if (memories->empty()) continue;
      std::byte* const base = memories->back().data();
      const int64 bytes = memories->back().bytes();
      stream->submit([=](Stream& s) { s.fill_zero(base, bytes); });
    }
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
  l.device_end = at;
  if (places_.moments == Place::host) at = 0;
  l.exp_avg = place(n * 4);
  l.exp_avg_sq = place(n * 4);
  l.end = at;
  return l;
}

std::byte* ShardedParameters::data(int64 bucket, int64 offset) const {
  return memory_.empty() ? nullptr : memory_[static_cast<std::size_t>(bucket)].data() + offset;
}

std::byte* ShardedParameters::moment_data(int64 bucket, int64 offset) const {
  if (places_.moments == Place::device) return data(bucket, offset);
  return host_moments_.empty() ? nullptr : host_moments_[static_cast<std::size_t>(bucket)].data() + offset;
}

View ShardedParameters::part(StepContext& ctx, const char* what, int64 bucket, std::byte* data, DType dtype,
                             Place place) const {
  return ctx.external(fmt::format("{} of {}", what, buckets_[static_cast<std::size_t>(bucket)].name), 1,
                      shard_elements(bucket), dtype, data, place);
}

View ShardedParameters::weight(StepContext& ctx, int64 bucket) const {
  return part(ctx, "weights", bucket, data(bucket, layout(bucket).weight), dtype_, Place::device);
}
View ShardedParameters::remainder(StepContext& ctx, int64 bucket) const {
  if (dtype_ == DType::f32) return View();
  return part(ctx, "master remainders", bucket, data(bucket, layout(bucket).remainder), DType::u16, Place::device);
}
View ShardedParameters::gradient(StepContext& ctx, int64 bucket) const {
  return part(ctx, "gradients", bucket, data(bucket, layout(bucket).gradient), DType::f32, Place::device);
}
View ShardedParameters::exp_avg(StepContext& ctx, int64 bucket) const {
  return part(ctx, "first moments", bucket, moment_data(bucket, layout(bucket).exp_avg), DType::f32, places_.moments);
}
View ShardedParameters::exp_avg_sq(StepContext& ctx, int64 bucket) const {
  return part(ctx, "second moments", bucket, moment_data(bucket, layout(bucket).exp_avg_sq), DType::f32, places_.moments);
}

namespace {

void copy_now(Stream& stream, void* to, const void* from, int64 bytes) {
  if (bytes == 0) return;
  stream.submit([=](Stream& s) { s.copy(to, from, bytes); });
  stream.synchronize();
}

}  // namespace

// The float32 array of a kind, from element `first`; the weights' own array for masters.
std::byte* ShardedParameters::piece(StateKind kind, int64 bucket, int64 first) const {
  const Layout l = layout(bucket);
  switch (kind) {
    case StateKind::master:
      return data(bucket, l.weight + first * size_of(dtype_));
    case StateKind::gradient:
      return data(bucket, l.gradient + first * 4);
    case StateKind::exp_avg:
      return moment_data(bucket, l.exp_avg + first * 4);
    case StateKind::exp_avg_sq:
      return moment_data(bucket, l.exp_avg_sq + first * 4);
  }
  throw InternalError("state kind {}", static_cast<int>(kind));
}

void ShardedParameters::read(Stream& stream, StateKind kind, int64 bucket, int64 first, int64 count, float* to) const {
  check(first >= 0 && first + count <= shard_elements(bucket), "elements {}+{} of bucket {}", first, count, bucket);
  if (kind != StateKind::master || dtype_ == DType::f32) {
    copy_now(stream, to, piece(kind, bucket, first), count * 4);
    return;
  }
  std::vector<std::uint16_t> weight(static_cast<std::size_t>(count)), low(static_cast<std::size_t>(count));
  copy_now(stream, weight.data(), piece(kind, bucket, first), count * 2);
  copy_now(stream, low.data(), data(bucket, layout(bucket).remainder + first * 2), count * 2);
  for (std::size_t i = 0; i < weight.size(); ++i) to[i] = join_master({bf16::from_bits(weight[i]), low[i]});
}

void ShardedParameters::write(Stream& stream, StateKind kind, int64 bucket, int64 first, int64 count, const float* from) {
  check(first >= 0 && first + count <= shard_elements(bucket), "elements {}+{} of bucket {}", first, count, bucket);
  if (kind != StateKind::master || dtype_ == DType::f32) {
    copy_now(stream, piece(kind, bucket, first), from, count * 4);
    return;
  }
  std::vector<std::uint16_t> weight(static_cast<std::size_t>(count)), low(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < weight.size(); ++i) {
    const SplitMaster split = split_master(from[i]);
    weight[i] = split.weight.bits;
    low[i] = split.remainder;
  }
  copy_now(stream, piece(kind, bucket, first), weight.data(), count * 2);
  copy_now(stream, data(bucket, layout(bucket).remainder + first * 2), low.data(), count * 2);
}

std::vector<ShardedParameters::Storage> ShardedParameters::storage() const {
  int64 weight = 0, remainder = 0, gradient = 0, first = 0, second = 0;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Layout l = layout(static_cast<int64>(b));
    weight += l.remainder - l.weight;
    remainder += l.gradient - l.remainder;
    gradient += l.device_end - l.gradient;
    first += l.exp_avg_sq - l.exp_avg;
    second += l.end - l.exp_avg_sq;
  }
  std::vector<Storage> found{{"weights", Place::device, weight}};
  if (dtype_ == DType::bf16) found.push_back({"master remainders", Place::device, remainder});
  found.push_back({"gradients", Place::device, gradient});
  found.push_back({"first moments", places_.moments, first});
  found.push_back({"second moments", places_.moments, second});
  return found;
}

int64 ShardedParameters::storage_bytes(Place place) const {
  int64 bytes = 0;
  for (const Storage& s : storage())
    if (s.place == place) bytes += s.bytes;
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
