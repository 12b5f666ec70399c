#include "model/decoder_layer.h"

#include <algorithm>
#include <cmath>

#include "attention/block_executor.h"

namespace megatoken {

DecoderLayer::DecoderLayer(StepOps& ops, const ModelSpec& spec, const Policy& policy, const SequencePart& part, DType dtype,
                           const TokenTables& tables)
    : ops_(ops), spec_(spec), policy_(policy), part_(part), dtype_(dtype), tables_(tables), sparse_(ops, spec, dtype) {
  check(policy.head_groups >= 1 && spec.num_kv_heads % policy.head_groups == 0, "{} KV heads in {} groups",
        spec.num_kv_heads, policy.head_groups);
  shape_.kv_heads = spec.num_kv_heads / policy.head_groups;
  shape_.heads = shape_.kv_heads * spec.heads_per_kv();
  shape_.head_dim = spec.head_dim;
  shape_.scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
  lead_ = policy.head_groups > 1 && part.layout.cp() > 1 && !part.ring() ? 1 : 0;
}

int64 DecoderLayer::token_tile() const {
  return policy_.token_tile == 0 ? std::max<int64>(part_.rows(), 1) : policy_.token_tile;
}
int64 DecoderLayer::tiles() const { return (part_.rows() + token_tile() - 1) / token_tile(); }

View DecoderLayer::tile(const View& rows, int64 t) const {
  const int64 first = t * token_tile();
  return rows.row_range(first, std::min(token_tile(), part_.rows() - first));
}

TokenTables DecoderLayer::tile(const TokenTables& tables, int64 t) const {
  return {tile(tables.positions, t), tile(tables.frequency_index, t), tables.inverse_frequency, tables.attention_factor};
}

DecoderLayer::Experts DecoderLayer::tile(const Experts& experts, int64 t) const {
  if (experts.routing.experts.absent()) return experts;
  Experts part = experts;
  part.routing = {tile(experts.routing.experts, t), tile(experts.routing.weights, t)};
  if (!experts.balance.counted.absent()) part.balance.counted = tile(experts.balance.counted, t);
  return part;
}

DecoderLayer::Group DecoderLayer::group(const LayerViews& w, int64 g) const {
  const int64 qs = shape_.query_cols(), ks = shape_.kv_cols();
  Group part{w.q.row_range(g * qs, qs), w.k.row_range(g * ks, ks), w.v.row_range(g * ks, ks), {}, {}, {}};
  if (!w.q_bias.absent()) {
    part.q_bias = w.q_bias.col_range(g * qs, qs);
    part.k_bias = w.k_bias.col_range(g * ks, ks);
    part.v_bias = w.v_bias.col_range(g * ks, ks);
  }
  return part;
}

void DecoderLayer::linear(std::string_view name, const View& x, const View& weight, const View& bias, const View& y) {
  Gemm op{x, weight, y, {}, false, true};
  ops_.gemm(name, op);
  if (!bias.absent()) ops_.add_bias(name, {y, bias});
}

void DecoderLayer::norm(std::string_view name, const View& x, const View& weight, const View& y) {
  ops_.rms_norm(name, {x, weight, y, static_cast<float>(spec_.rms_norm_eps)});
}

NormRope DecoderLayer::rope(const View& x, const View& weight, const View& y, const TokenTables& tables) const {
  return {x,
          weight,
          y,
          tables.positions,
          tables.frequency_index,
          tables.inverse_frequency,
          tables.attention_factor,
          static_cast<float>(spec_.rms_norm_eps),
          spec_.head_dim};
}

void DecoderLayer::project(const LayerViews& w, int64 g, const View& x, const View& q, const View& kv) {
  auto& ctx = ops_.context();
  const Group of = group(w, g);
  for (const int64 t : ctx.loop("token tile", tiles(), {.period = 1})) {
    const View rows = tile(x, t);
    const TokenTables tables = tile(tables_, t);
    Buffer h = ctx.buffer("normalized input", rows.rows, spec_.hidden_size, dtype_);
    norm("input norm", rows, w.input_norm, h);
    if (!q.absent()) {
      const View y = tile(q, t);
      linear("query projection", h, of.q, of.q_bias, y);
      ops_.norm_rope("query norm and rope", rope(y, w.q_norm, y, tables));
    }
    if (!kv.absent()) {
      const View k = tile(kv, t).col_range(0, shape_.kv_cols());
      linear("key projection", h, of.k, of.k_bias, k);
      ops_.norm_rope("key norm and rope", rope(k, w.k_norm, k, tables));
      linear("value projection", h, of.v, of.v_bias, tile(kv, t).col_range(shape_.kv_cols(), shape_.kv_cols()));
    }
  }
}

KeyValueExchange::Pending DecoderLayer::start_keys(KeyValueExchange& exchange, const LayerViews& w, int64 g, const View& x) {
  Buffer kv = exchange.local();
  project(w, g, x, View(), kv);
  return exchange.start(std::move(kv));
}

void DecoderLayer::forward_attention(const LayerViews& w, const View& x, const View& o, const View& lse) {
  auto& ctx = ops_.context();
  KeyValueExchange exchange(ops_, part_, shape_, dtype_, lead_);
  KeyValueExchange::Pending next;
  if (lead_ == 1) next = start_keys(exchange, w, 0, x);
  for (const int64 g : ctx.loop("head group", policy_.head_groups, {.period = group_period()})) {
    Buffer q = ctx.buffer("queries", part_.rows(), shape_.query_cols(), dtype_);
    KeyValueExchange::Pending current;
    if (lead_ == 1) {
      current = std::move(next);
      if (g + 1 < policy_.head_groups) next = start_keys(exchange, w, g + 1, x);
      project(w, g, x, q, View());
    } else {
      Buffer kv = exchange.local();
      project(w, g, x, q, kv);
      current = exchange.start(std::move(kv));
    }
    AttentionForwardBlocks blocks(ops_, part_, shape_, q, o.col_range(g * shape_.query_cols(), shape_.query_cols()),
                                  lse.row_range(g * shape_.heads, shape_.heads));
    exchange.forward(std::move(current),
                     [&](const AttentionPhase& phase, const View& k, const View& v) { blocks.visit(phase, k, v); });
    blocks.finish();
  }
}

void DecoderLayer::up(const LayerViews& w, const View& h, const View& gate_up, const View& act) {
  linear("gate and up projection", h, w.gate_up, w.gate_up_bias, gate_up);
  ops_.swiglu("swiglu", {gate_up, act});
}

void DecoderLayer::forward_dense_mlp(const LayerViews& w, const View& h, const View& y) {
  auto& ctx = ops_.context();
  Buffer gate_up = ctx.buffer("gate and up", h.rows, 2 * spec_.intermediate_size, dtype_);
  Buffer act = ctx.buffer("mlp activation", h.rows, spec_.intermediate_size, dtype_);
  up(w, h, gate_up, act);
  ops_.gemm("down projection", {act, w.down, y, y, false, true});
  if (!w.down_bias.absent()) ops_.add_bias("down projection", {y, w.down_bias});
}

void DecoderLayer::forward_mlp(const LayerViews& w, const Experts& experts, const View& x, const View& o, const View& out) {
  auto& ctx = ops_.context();
  for (const int64 t : ctx.loop("token tile", tiles(), {.period = 1})) {
    const View y = tile(out, t);
    ops_.gemm("output projection", {tile(o, t), w.o, y, tile(x, t), false, true});
    if (!w.o_bias.absent()) ops_.add_bias("output projection", {y, w.o_bias});
    Buffer h = ctx.buffer("normalized residual", y.rows, spec_.hidden_size, dtype_);
    norm("post-attention norm", y, w.post_norm, h);
    if (!w.sparse()) {
      forward_dense_mlp(w, h, y);
      continue;
    }
    const Experts part = tile(experts, t);
    if (!part.decided) sparse_.route(w, h, part.routing, part.balance);
    sparse_.forward(w, h, part.routing, y);
  }
}

}  // namespace megatoken
