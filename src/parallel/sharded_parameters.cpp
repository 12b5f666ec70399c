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
    for (std::size_t p = 0; p < kNumPlaces; ++p) {
      const std::string what = "training state of " + buckets_[b].name;
      const int64 bytes = l.size[p];
      if (bytes == 0) {
        memory_[p].emplace_back();
        continue;
      }
      memory_[p].push_back(p == 0 ? device->allocate(bytes, what) : device->allocate_host(bytes, what));
      std::byte* const base = memory_[p].back().data();
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
  Layout l;
  const auto put = [&](Piece& piece, Place place, int64 bytes) {
    int64& at = l.size[static_cast<std::size_t>(place)];
    piece = {place, at, bytes};
    at = (at + bytes + 255) / 256 * 256;
  };
  put(l.weight, places_.weights, n * size_of(dtype_));
  put(l.remainder, places_.optimizer, dtype_ == DType::bf16 ? n * 2 : 0);
  put(l.gradient, places_.gradients, n * 4);
  put(l.exp_avg, places_.optimizer, n * 4);
  put(l.exp_avg_sq, places_.optimizer, n * 4);
  return l;
}

std::byte* ShardedParameters::data(int64 bucket, const Piece& piece) const {
  const auto& memory = memory_[static_cast<std::size_t>(piece.place)];
  return memory.empty() ? nullptr : memory[static_cast<std::size_t>(bucket)].data() + piece.offset;
}

View ShardedParameters::part(StepContext& ctx, const char* what, int64 bucket, Piece Layout::*piece,
                             DType dtype) const {
  const Layout l = layout(bucket);
  return ctx.external(fmt::format("{} of {}", what, buckets_[static_cast<std::size_t>(bucket)].name), 1,
                      shard_elements(bucket), dtype, data(bucket, l.*piece), (l.*piece).place);
}

View ShardedParameters::weight(StepContext& ctx, int64 bucket) const {
  return part(ctx, "weights", bucket, &Layout::weight, dtype_);
}
View ShardedParameters::remainder(StepContext& ctx, int64 bucket) const {
  if (dtype_ == DType::f32) return View();
  return part(ctx, "master remainders", bucket, &Layout::remainder, DType::u16);
}
View ShardedParameters::gradient(StepContext& ctx, int64 bucket) const {
  return part(ctx, "gradients", bucket, &Layout::gradient, DType::f32);
}
View ShardedParameters::exp_avg(StepContext& ctx, int64 bucket) const {
  return part(ctx, "first moments", bucket, &Layout::exp_avg, DType::f32);
}
View ShardedParameters::exp_avg_sq(StepContext& ctx, int64 bucket) const {
  return part(ctx, "second moments", bucket, &Layout::exp_avg_sq, DType::f32);
}

namespace {

void copy_now(Stream& stream, void* to, const void* from, int64 bytes) {
  if (bytes == 0) return;
  stream.submit([=](Stream& s) { s.copy(to, from, bytes); });
  stream.synchronize();
}

}  // namespace

std::byte* ShardedParameters::element(StateKind kind, int64 bucket, int64 first) const {
  const Layout l = layout(bucket);
  switch (kind) {
    case StateKind::master:
      return data(bucket, l.weight) + first * size_of(dtype_);
    case StateKind::gradient:
      return data(bucket, l.gradient) + first * 4;
    case StateKind::exp_avg:
      return data(bucket, l.exp_avg) + first * 4;
    case StateKind::exp_avg_sq:
      return data(bucket, l.exp_avg_sq) + first * 4;
  }
  throw InternalError("state kind {}", static_cast<int>(kind));
}

void ShardedParameters::read(Stream& stream, StateKind kind, int64 bucket, int64 first, int64 count, float* to) const {
  check(first >= 0 && first + count <= shard_elements(bucket), "elements {}+{} of bucket {}", first, count, bucket);
  if (kind != StateKind::master || dtype_ == DType::f32) {
    copy_now(stream, to, element(kind, bucket, first), count * 4);
    return;
  }
  std::vector<std::uint16_t> weight(static_cast<std::size_t>(count)), low(static_cast<std::size_t>(count));
  copy_now(stream, weight.data(), element(kind, bucket, first), count * 2);
  copy_now(stream, low.data(), data(bucket, layout(bucket).remainder) + first * 2, count * 2);
  for (std::size_t i = 0; i < weight.size(); ++i) to[i] = join_master({bf16::from_bits(weight[i]), low[i]});
}

void ShardedParameters::write(Stream& stream, StateKind kind, int64 bucket, int64 first, int64 count,
                              const float* from) {
  check(first >= 0 && first + count <= shard_elements(bucket), "elements {}+{} of bucket {}", first, count, bucket);
  if (kind != StateKind::master || dtype_ == DType::f32) {
    copy_now(stream, element(kind, bucket, first), from, count * 4);
    return;
  }
  std::vector<std::uint16_t> weight(static_cast<std::size_t>(count)), low(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < weight.size(); ++i) {
    const SplitMaster split = split_master(from[i]);
    weight[i] = split.weight.bits;
    low[i] = split.remainder;
  }
  copy_now(stream, element(kind, bucket, first), weight.data(), count * 2);
  copy_now(stream, data(bucket, layout(bucket).remainder) + first * 2, low.data(), count * 2);
}

std::vector<ShardedParameters::Storage> ShardedParameters::storage() const {
  std::vector<Storage> found{{"weights", places_.weights, 0},
                             {"master remainders", places_.optimizer, 0},
                             {"gradients", places_.gradients, 0},
                             {"first moments", places_.optimizer, 0},
                             {"second moments", places_.optimizer, 0}};
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Layout l = layout(static_cast<int64>(b));
    const Piece* const pieces[] = {&l.weight, &l.remainder, &l.gradient, &l.exp_avg, &l.exp_avg_sq};
    for (std::size_t i = 0; i < found.size(); ++i) found[i].bytes += (pieces[i]->bytes + 255) / 256 * 256;
  }
  std::erase_if(found, [](const Storage& s) { return s.bytes == 0; });
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
