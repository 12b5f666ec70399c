#include "attention/block_executor.h"
#include "model/decoder_layer.h"

namespace megatoken {

void DecoderLayer::weight_gradient(std::string_view name, const View& dy, const View& x, const View& dweight,
                                   const View& dbias) {
  ops_.gemm(name, {dy, x, dweight, dweight, true, false});
  if (!dbias.absent()) ops_.bias_gradient(name, {dy, dbias});
}

// h's gradient [n, H] f32.
Buffer DecoderLayer::backward_dense_mlp(const LayerViews& w, const LayerViews& g, const View& h, const View& dout) {
  auto& ctx = ops_.context();
  const int64 n = h.rows, intermediate = spec_.intermediate_size;
  Buffer gate_up = ctx.buffer("gate and up", n, 2 * intermediate, dtype_);
  Buffer dact = ctx.buffer("mlp activation gradient", n, intermediate, dtype_);
  {
    Buffer act = ctx.buffer("mlp activation", n, intermediate, dtype_);
    up(w, h, gate_up, act);
    weight_gradient("down projection weight gradient", dout, act, g.down, g.down_bias);
  }
  ops_.gemm("down projection input gradient", {dout, w.down, dact, {}, false, false});
  ops_.swiglu_backward("swiglu backward", {gate_up, dact, gate_up});
  dact.reset();
  weight_gradient("gate and up projection weight gradient", gate_up, h, g.gate_up, g.gate_up_bias);
  Buffer dh = ctx.buffer("normalized residual gradient", n, spec_.hidden_size, DType::f32);
  ops_.gemm("gate and up projection input gradient", {gate_up, w.gate_up, dh, {}, false, false});
  return dh;
}

// dx: gradient of the layer's output on entry, of y (the residual after attention) on return.
void DecoderLayer::backward_mlp(const LayerViews& w, const LayerViews& g, const Experts& experts, const View& x,
                                const View& o, const View& dx) {
  auto& ctx = ops_.context();
  const int64 hidden = spec_.hidden_size;
  for (const int64 t : ctx.loop("token tile", tiles(), {.period = 1})) {
    const View dout = tile(dx, t), o_rows = tile(o, t);
    const int64 n = dout.rows;
    Buffer y = ctx.buffer("attention residual", n, hidden, dtype_);
    Buffer h = ctx.buffer("normalized residual", n, hidden, dtype_);
    ops_.gemm("output projection", {o_rows, w.o, y, tile(x, t), false, true});
    if (!w.o_bias.absent()) ops_.add_bias("output projection", {y, w.o_bias});
    norm("post-attention norm", y, w.post_norm, h);
    const Experts part = tile(experts, t);
    const Buffer dh = w.sparse() ? sparse_.backward(w, g, h, part.routing, part.balance, dout)
                                 : backward_dense_mlp(w, g, h, dout);
    ops_.rms_norm_backward("post-attention norm backward",
                           {y, w.post_norm, dh, dout, dout, g.post_norm, static_cast<float>(spec_.rms_norm_eps)});
    weight_gradient("output projection weight gradient", dout, o_rows, g.o, g.o_bias);
  }
}

// From dq, dkv of head group g back through rope, norms and projections. dh_sum absent: one head group, finish dx here;
// else add to dh_sum [rows, H] f32.
void DecoderLayer::backward_projection(const LayerViews& w, const LayerViews& grad, int64 g, const View& x, const View& dq,
                                       const View& dkv, const View& dh_sum, const View& dx) {
  auto& ctx = ops_.context();
  const Group weight = group(w, g), gradient = group(grad, g);
  const int64 kv = shape_.kv_cols();
  for (const int64 t : ctx.loop("token tile", tiles(), {.period = 1})) {
    const View rows = tile(x, t);
    const int64 n = rows.rows;
    const TokenTables tables = tile(tables_, t);
    Buffer h = ctx.buffer("normalized input", n, spec_.hidden_size, dtype_);
    norm("input norm", rows, w.input_norm, h);
    Buffer dh_tile;
    if (dh_sum.absent()) dh_tile = ctx.buffer("normalized input gradient", n, spec_.hidden_size, DType::f32);
    const View dh = dh_sum.absent() ? dh_tile.view() : tile(dh_sum, t);
    bool begun = !dh_sum.absent() && g > 0;
    const auto through = [&](std::string_view name, const View& dy, const View& matrix, const View& dmatrix,
                             const View& dbias) {
      weight_gradient(name, dy, h, dmatrix, dbias);
      ops_.gemm(name, {dy, matrix, dh, begun ? dh : View(), false, false});
      begun = true;
    };
    const auto through_rope = [&](std::string_view name, const View& dy, const View& matrix, const View& bias,
                                  const View& norm_weight, const View& dmatrix, const View& dbias, const View& dnorm) {
      Buffer pre;
      if (!norm_weight.absent()) {
        pre = ctx.buffer("projection before norm", n, dy.cols, dtype_);
        linear(name, h, matrix, bias, pre);
      }
      Buffer dpre = ctx.buffer("projection gradient", n, dy.cols, dtype_);
      ops_.norm_rope_backward(name, {rope(pre.held() ? pre.view() : View(), norm_weight, View(), tables), dy, dpre, dnorm});
      pre.reset();
      through(name, dpre, matrix, dmatrix, dbias);
    };
    through_rope("query projection backward", tile(dq, t), weight.q, weight.q_bias, w.q_norm, gradient.q, gradient.q_bias,
                 grad.q_norm);
    through_rope("key projection backward", tile(dkv, t).col_range(0, kv), weight.k, weight.k_bias, w.k_norm, gradient.k,
                 gradient.k_bias, grad.k_norm);
    Buffer dv = ctx.buffer("value gradient", n, kv, dtype_);
    ops_.convert("value gradient", {tile(dkv, t).col_range(kv, kv), dv});
    through("value projection backward", dv, weight.v, gradient.v, gradient.v_bias);
    if (dh_sum.absent())
      ops_.rms_norm_backward("input norm backward", {rows, w.input_norm, dh, tile(dx, t), tile(dx, t), grad.input_norm,
                                                     static_cast<float>(spec_.rms_norm_eps)});
  }
}

void DecoderLayer::backward_input_norm(const LayerViews& w, const LayerViews& g, const View& x, const View& dh,
                                       const View& dx) {
  for (const int64 t : ops_.context().loop("token tile", tiles(), {.period = 1}))
    ops_.rms_norm_backward("input norm backward", {tile(x, t), w.input_norm, tile(dh, t), tile(dx, t), tile(dx, t),
                                                   g.input_norm, static_cast<float>(spec_.rms_norm_eps)});
}

void DecoderLayer::backward(const LayerViews& w, const LayerViews& g, const Experts& experts, const View& x,
                            const View& o, const View& lse, const View& dx) {
  auto& ctx = ops_.context();
  backward_mlp(w, g, experts, x, o, dx);

  Buffer dh_sum;
  if (policy_.head_groups > 1)
    dh_sum = ctx.buffer("normalized input gradient sum", part_.rows(), spec_.hidden_size, DType::f32);
  KeyValueExchange exchange(ops_, part_, shape_, dtype_, lead_);
  KeyValueExchange::Pending next;
  if (lead_ == 1) next = start_keys(exchange, w, 0, x);
  for (const int64 i : ctx.loop("head group", policy_.head_groups, {.period = group_period()})) {
    const int64 cols = shape_.query_cols();
    Buffer q = ctx.buffer("queries", part_.rows(), cols, dtype_);
    KeyValueExchange::Pending current;
    if (lead_ == 1) {
      current = std::move(next);
      if (i + 1 < policy_.head_groups) next = start_keys(exchange, w, i + 1, x);
      project(w, i, x, q, View());
    } else {
      Buffer kv = exchange.local();
      project(w, i, x, q, kv);
      current = exchange.start(std::move(kv));
    }
    Buffer dout = ctx.buffer("attention output gradient", part_.rows(), cols, dtype_);
    for (const int64 t : ctx.loop("token tile", tiles(), {.period = 1}))
      ops_.gemm("output projection input gradient",
                {tile(dx, t), w.o.col_range(i * cols, cols), tile(dout, t), {}, false, false});
    Buffer dq = ctx.buffer("query gradients", part_.rows(), cols, DType::f32);
    ops_.fill_zero("zero query gradients", {dq});
    Buffer dkv = exchange.backward(
        std::move(current),
        [&](const AttentionPhase& phase, const View& k, const View& v, const View& dk, const View& dv) {
          attention_backward_blocks(ops_, phase, shape_,
                                    {q, o.col_range(i * cols, cols), dout, lse.row_range(i * shape_.heads, shape_.heads), k,
                                     v, dq, dk, dv});
        });
    q.reset();
    dout.reset();
    backward_projection(w, g, i, x, dq, dkv, dh_sum.held() ? dh_sum.view() : View(), dx);
  }
  if (dh_sum.held()) backward_input_norm(w, g, x, dh_sum, dx);
}

}  // namespace megatoken
