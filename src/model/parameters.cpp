#include "model/parameters.h"

#include <fmt/format.h>

#include <string_view>

namespace megatoken {
namespace {

ParameterSpec matrix(std::string name, int64 rows, int64 cols) { return {std::move(name), rows, cols, false, true, 0}; }
ParameterSpec vector(std::string name, int64 cols) { return {std::move(name), 1, cols, true, false, 0}; }

BucketSpec layer_bucket(const ModelSpec& spec, int64 layer) {
  const int64 h = spec.hidden_size;
  const int64 i = spec.intermediate_size;
  const std::string base = fmt::format("model.layers.{}.", layer);
  BucketSpec bucket{fmt::format("layer {}", layer), {}, 0};
  bucket.add(vector(base + "input_layernorm.weight", h));
  bucket.add(matrix(base + "self_attn.q_proj.weight", spec.query_size(), h));
  bucket.add(matrix(base + "self_attn.k_proj.weight", spec.kv_size(), h));
  bucket.add(matrix(base + "self_attn.v_proj.weight", spec.kv_size(), h));
  if (spec.qkv_bias) {
    bucket.add(vector(base + "self_attn.q_proj.bias", spec.query_size()));
    bucket.add(vector(base + "self_attn.k_proj.bias", spec.kv_size()));
    bucket.add(vector(base + "self_attn.v_proj.bias", spec.kv_size()));
  }
  if (spec.qk_norm) {
    bucket.add(vector(base + "self_attn.q_norm.weight", spec.head_dim));
    bucket.add(vector(base + "self_attn.k_norm.weight", spec.head_dim));
  }
  bucket.add(matrix(base + "self_attn.o_proj.weight", h, spec.query_size()));
  if (spec.o_bias) bucket.add(vector(base + "self_attn.o_proj.bias", h));
  bucket.add(vector(base + "post_attention_layernorm.weight", h));
  bucket.add(matrix(base + "mlp.gate_proj.weight", i, h));
  bucket.add(matrix(base + "mlp.up_proj.weight", i, h), /*adjacent=*/true);  // one product serves both
  if (spec.mlp_bias) {
    bucket.add(vector(base + "mlp.gate_proj.bias", i));
    bucket.add(vector(base + "mlp.up_proj.bias", i), /*adjacent=*/true);
  }
  bucket.add(matrix(base + "mlp.down_proj.weight", h, i));
  if (spec.mlp_bias) bucket.add(vector(base + "mlp.down_proj.bias", h));
  return bucket;
}

// A parameter by the end of its name; absent when the family has none.
class Finder {
 public:
  Finder(const BucketSpec& layout, const View& bucket) : layout_(layout), bucket_(bucket) {}
  View operator()(std::string_view suffix) const {
    for (const ParameterSpec& p : layout_.parameters)
      if (p.name.ends_with(suffix)) return bucket_.col_range(p.offset, p.elements()).reshaped(p.rows, p.cols);
    return View();
  }
  // Two adjacent parameters as one, stacked by rows (matrices) or side by side (vectors).
  View joined(std::string_view first, std::string_view second) const {
    const View a = (*this)(first), b = (*this)(second);
    if (a.absent()) return View();
    check(b.data == a.data + a.bytes(), "{} and {} are not adjacent", first, second);
    return first.ends_with(".bias") ? View(a.data, a.dtype, 1, a.cols + b.cols)
                                      : View(a.data, a.dtype, a.rows + b.rows, a.cols);
  }

 private:
  const BucketSpec& layout_;
  const View& bucket_;
};

}  // namespace

std::vector<BucketSpec> make_buckets(const ModelSpec& spec) {
  std::vector<BucketSpec> buckets;
  BucketSpec embedding{"embedding", {}, 0};
  embedding.add(matrix("model.embed_tokens.weight", spec.vocab_size, spec.hidden_size));
  buckets.push_back(std::move(embedding));
  for (int64 layer = 0; layer < spec.num_layers; ++layer) buckets.push_back(layer_bucket(spec, layer));
  BucketSpec head{"head", {}, 0};
  head.add(vector("model.norm.weight", spec.hidden_size));
  if (!spec.tie_word_embeddings) head.add(matrix("lm_head.weight", spec.vocab_size, spec.hidden_size));
  buckets.push_back(std::move(head));
  return buckets;
}

LayerViews layer_views(const ModelSpec& spec, const BucketSpec& layout, const View& bucket) {
  const Finder find(layout, bucket);
  LayerViews v;
  v.input_norm = find("input_layernorm.weight");
  v.q = find("q_proj.weight");
  v.k = find("k_proj.weight");
  v.v = find("v_proj.weight");
  v.q_bias = find("q_proj.bias");
  v.k_bias = find("k_proj.bias");
  v.v_bias = find("v_proj.bias");
  v.q_norm = find("q_norm.weight");
  v.k_norm = find("k_norm.weight");
  v.o = find("o_proj.weight");
  v.o_bias = find("o_proj.bias");
  v.post_norm = find("post_attention_layernorm.weight");
  v.gate_up = find.joined("gate_proj.weight", "up_proj.weight");
  v.gate_up_bias = find.joined("gate_proj.bias", "up_proj.bias");
  v.down = find("down_proj.weight");
  v.down_bias = find("down_proj.bias");
  check(v.q.rows == spec.query_size() && v.down.cols == spec.intermediate_size, "bucket {} of another model", layout.name);
  return v;
}

HeadViews head_views(const ModelSpec& spec, const BucketSpec& layout, const View& bucket) {
  const Finder find(layout, bucket);
  HeadViews v;
  v.norm = find("model.norm.weight");
  if (!spec.tie_word_embeddings) v.weight = find("lm_head.weight");
  return v;
}

View embedding_view(const ModelSpec& spec, const View& bucket) {
  return bucket.col_range(0, spec.vocab_size * spec.hidden_size).reshaped(spec.vocab_size, spec.hidden_size);
}

}  // namespace megatoken
