#include "model/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <thread>

#include "base/random.h"

namespace megatoken {
namespace {

// Elements that pass through host memory at a time.
constexpr int64 kChunk = int64{1} << 20;

std::string shape_text(const std::vector<int64>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

void require(const CheckpointReader& reader, const std::string& name, const std::vector<int64>& shape) {
  const auto info = reader.find(name);
  if (!info) throw FileError("{}: tensor {} is missing", reader.dir(), name);
  if (info->shape != shape)
    throw FileError("{}: tensor {} has shape {}, the configuration asks for {}", info->file, name, info->shape_text(),
                    shape_text(shape));
  if (info->dtype != DType::f32 && info->dtype != DType::bf16 && info->dtype != DType::f16)
    throw FileError("{}: tensor {} is {}; float32, float16 and bfloat16 weights are read", info->file, name,
                    info->stored_dtype);
}

// Draws from a counter are independent: large pieces are filled by all cores.
void fill_normal(const Random& random, std::span<float> out, std::uint64_t first, float deviation) {
  constexpr std::size_t kLeast = std::size_t{1} << 16;
  const std::size_t threads = std::clamp<std::size_t>(out.size() / kLeast, 1, std::max(1u, std::thread::hardware_concurrency()));
  const std::size_t part = (out.size() / threads + 3) / 4 * 4;  // whole blocks of four words
  std::vector<std::jthread> workers;
  for (std::size_t begin = 0; begin < out.size(); begin += part)
    workers.emplace_back([&random, piece = out.subspan(begin, std::min(part, out.size() - begin)), first, begin, deviation] {
      random.fill_normal(piece, first + begin, 0.0f, deviation);
    });
}

// Calls visit(bucket, span, first element in the span, count) for pieces of at most kChunk elements.
template <typename Visit>
void for_each_piece(const ShardedParameters& parameters, Visit visit) {
  for (std::size_t b = 0; b < parameters.buckets().size(); ++b)
    for (const auto& span : parameters.spans(static_cast<int64>(b)))
      for (int64 at = 0; at < span.count; at += kChunk)
        visit(static_cast<int64>(b), span, at, std::min(kChunk, span.count - at));
}

}  // namespace

ExpertLayout expert_layout_of(const ModelSpec& spec, const CheckpointReader& reader) {
  for (int64 layer = 0; layer < spec.num_layers; ++layer)
    if (spec.is_sparse(layer))
      return reader.find(fmt::format("model.layers.{}.mlp.experts.gate_up_proj", layer)) ? ExpertLayout::fused
                                                                                          : ExpertLayout::per_expert;
  return ExpertLayout::per_expert;
}

void check_weights(const ModelSpec& spec, const std::vector<BucketSpec>& buckets, const CheckpointReader& reader) {
  std::set<std::string> known;
  for (const BucketSpec& bucket : buckets)
    for (const ParameterSpec& p : bucket.parameters)
      for (const StoredTensor& tensor : stored_tensors(p)) {
        require(reader, tensor.name, tensor.shape);
        known.insert(tensor.name);
      }
  for (const std::string& name : reader.names()) {
    if (known.contains(name) || name.ends_with("rotary_emb.inv_freq")) continue;  // old checkpoints store the latter
    if (spec.tie_word_embeddings && name == "lm_head.weight") continue;
    throw FileError("{}: tensor {} has no place in the model that {} describes", reader.find(name)->file, name, spec.source);
  }
}

void load_weights(ShardedParameters& parameters, Stream& stream, const CheckpointReader& reader) {
  load_state(parameters, stream, {StateKind::master, ""}, reader);
}

void load_state(ShardedParameters& parameters, Stream& stream, const SavedState& state, const CheckpointReader& reader) {
  std::vector<float> values(static_cast<std::size_t>(kChunk));
  for (const BucketSpec& bucket : parameters.buckets())
    for (const ParameterSpec& p : bucket.parameters)
      for (const StoredTensor& tensor : stored_tensors(p)) require(reader, state.prefix + tensor.name, tensor.shape);
  for (std::size_t b = 0; b < parameters.buckets().size(); ++b)
    for (const auto& span : parameters.spans(static_cast<int64>(b)))
      for (const StoredTensor& tensor : stored_tensors(*span.parameter)) {
        const int64 end = std::min(span.first + span.count, tensor.first + tensor.count);
        for (int64 at = std::max(span.first, tensor.first); at < end; at += kChunk) {
          const int64 count = std::min(kChunk, end - at);
          reader.read(state.prefix + tensor.name, at - tensor.first, count, DType::f32, values.data());
          parameters.write(stream, state.kind, static_cast<int64>(b), span.offset_in_shard + at - span.first, count,
                           values.data());
        }
      }
}

void initialize_weights(ShardedParameters& parameters, Stream& stream, const ModelSpec& spec, std::uint64_t seed) {
  // A parameter's stream is its place among all parameters.
  std::vector<std::uint64_t> first_stream{0};
  for (const BucketSpec& bucket : parameters.buckets()) first_stream.push_back(first_stream.back() + bucket.parameters.size());
  std::vector<float> values(static_cast<std::size_t>(kChunk));
  for_each_piece(parameters, [&](int64 bucket, const ShardedParameters::Span& span, int64 at, int64 count) {
    const ParameterSpec& p = *span.parameter;
    const std::span<float> out(values.data(), static_cast<std::size_t>(count));
    if (p.vector) {
      std::fill(out.begin(), out.end(), p.name.ends_with(".bias") ? 0.0f : 1.0f);
    } else {
      const auto index = &p - parameters.buckets()[static_cast<std::size_t>(bucket)].parameters.data();
      const Random random(seed, first_stream[static_cast<std::size_t>(bucket)] + static_cast<std::uint64_t>(index));
      fill_normal(random, out, static_cast<std::uint64_t>(span.first + at), static_cast<float>(spec.initializer_range));
    }
    parameters.write(stream, StateKind::master, bucket, span.offset_in_shard + at, count, values.data());
  });
}

std::vector<TensorDeclaration> declare_tensors(const std::vector<BucketSpec>& buckets, const std::vector<SavedState>& states,
                                               DType dtype) {
  std::vector<TensorDeclaration> declared;
  for (const SavedState& state : states)
    for (const BucketSpec& bucket : buckets)
      for (const ParameterSpec& p : bucket.parameters)
        for (StoredTensor& tensor : stored_tensors(p))
          declared.push_back({state.prefix + tensor.name, dtype, std::move(tensor.shape)});
  return declared;
}

void save_state(const ShardedParameters& parameters, Stream& stream, Group& shards, const SavedState& state, DType dtype,
                SafetensorsWriter* writer) {
  std::vector<float> values(static_cast<std::size_t>(kChunk));
  std::vector<std::uint16_t> rounded;
  std::vector<StoredTensor> tensors;  // of the bucket at hand, each from its place in the bucket on
  // Writes elements [begin, begin + count) of the bucket, wherever they fall among its tensors.
  const auto write = [&](int64 begin, int64 count, const float* data) {
    for (const StoredTensor& tensor : tensors) {
      const int64 from = std::max(begin, tensor.first), to = std::min(begin + count, tensor.first + tensor.count);
      if (from >= to) continue;
      const float* const piece = data + (from - begin);
      const void* bytes = piece;
      if (dtype == DType::bf16) {
        rounded.resize(static_cast<std::size_t>(to - from));
        for (std::size_t i = 0; i < rounded.size(); ++i) rounded[i] = bf16(piece[i]).bits;
        bytes = rounded.data();
      }
      writer->write(state.prefix + tensor.name, from - tensor.first, to - from, bytes);
    }
  };
  for (std::size_t b = 0; b < parameters.buckets().size(); ++b) {
    const auto bucket = static_cast<int64>(b);
    tensors.clear();
    for (const ParameterSpec& p : parameters.buckets()[b].parameters)
      for (StoredTensor& tensor : stored_tensors(p)) {
        tensor.first += p.offset;
        tensors.push_back(std::move(tensor));
      }
    const int64 shard = parameters.shard_elements(bucket);
    for (int64 at = 0; at < shard; at += kChunk) {
      const int64 count = std::min(kChunk, shard - at);
      parameters.read(stream, state.kind, bucket, at, count, values.data());
      const auto pieces =
          shards.all_gather_host(std::string(reinterpret_cast<const char*>(values.data()), static_cast<std::size_t>(count) * 4));
      if (writer == nullptr) continue;
      for (std::size_t r = 0; r < pieces.size(); ++r) {
        std::memcpy(values.data(), pieces[r].data(), pieces[r].size());
        write(static_cast<int64>(r) * shard + at, count, values.data());
      }
    }
  }
}

}  // namespace megatoken
