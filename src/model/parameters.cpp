#include "model/parameters.h"

#include <fmt/format.h>

#include <string_view>

namespace megatoken {
namespace {

ParameterSpec matrix(std::string name, int64 rows, int64 cols) { return {std::move(name), rows, cols, false, true, 0}; }
ParameterSpec vector(std::string name, int64 cols) { return {std::move(name), 1, cols, true, false, 0}; }

void add_mlp(BucketSpec& bucket, const std::string& base, int64 hidden, int64 intermediate, bool bias) {
  bucket.add(matrix(base + "gate_proj.weight", intermediate, hidden));
  bucket.add(matrix(base + "up_proj.weight", intermediate, hidden), /*adjacent=*/true);  // one product serves both
  if (bias) {
    bucket.add(vector(base + "gate_proj.bias", intermediate));
    bucket.add(vector(base + "up_proj.bias", intermediate), /*adjacent=*/true);
  }
  bucket.add(matrix(base + "down_proj.weight", hidden, intermediate));
  if (bias) bucket.add(vector(base + "down_proj.bias", hidden));
}

// The names under which a checkpoint of one tensor an expert's matrix has them. Mixtral's are its first release's.
struct ExpertNames {
  const char *block, *gate, *up, *down;
};
ExpertNames expert_names(const ModelSpec& spec) {
  if (spec.model_type == "mixtral") return {"block_sparse_moe.", "w1", "w3", "w2"};
  return {"mlp.", "gate_proj", "up_proj", "down_proj"};
}

void add_experts(BucketSpec& bucket, const std::string& layer, const ModelSpec& spec) {
  const ExpertSpec& e = spec.experts;
  const int64 h = spec.hidden_size;
  ParameterSpec router = matrix(layer + "mlp.gate.weight", e.count, h);
  ParameterSpec gate_up = matrix(layer + "mlp.experts.gate_up_proj", e.count * 2 * e.intermediate_size, h);
  ParameterSpec down = matrix(layer + "mlp.experts.down_proj", e.count * h, e.intermediate_size);
  gate_up.experts = down.experts = e.count;
  if (spec.expert_layout == ExpertLayout::per_expert) {
    const ExpertNames names = expert_names(spec);
    const std::string block = layer + names.block;
    const auto of = [&](const char* what) { return block + "experts.{}." + what + ".weight"; };
    router.stored_names = {block + "gate.weight"};
    gate_up.stored_names = {of(names.gate), of(names.up)};
    down.stored_names = {of(names.down)};
  }
  bucket.add(std::move(router));
  bucket.add(std::move(gate_up));
  bucket.add(std::move(down));
  if (e.shared_intermediate_size == 0) return;
  add_mlp(bucket, layer + "mlp.shared_expert.", h, e.shared_intermediate_size, false);
  bucket.add(matrix(layer + "mlp.shared_expert_gate.weight", 1, h));
}

BucketSpec layer_bucket(const ModelSpec& spec, int64 layer) {
  const int64 h = spec.hidden_size;
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
  if (spec.is_sparse(layer))
    add_experts(bucket, base, spec);
  else
    add_mlp(bucket, base + "mlp.", h, spec.intermediate_size, spec.mlp_bias);
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
  v.router = find("mlp.gate.weight");
  v.expert_gate_up = find("experts.gate_up_proj");
  v.expert_down = find("experts.down_proj");
  v.shared_gate = find("shared_expert_gate.weight");
  v.gate_up = find.joined("gate_proj.weight", "up_proj.weight");
  v.gate_up_bias = find.joined("gate_proj.bias", "up_proj.bias");
  v.down = find("down_proj.weight");
  v.down_bias = find("down_proj.bias");
  check(v.q.rows == spec.query_size() &&
            (v.sparse() ? v.router.rows == spec.experts.count : v.down.cols == spec.intermediate_size),
        "bucket {} of another model", layout.name);
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
