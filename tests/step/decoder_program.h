// The shape of a training step, without its arithmetic: layers with head groups, key blocks and token tiles, weights
// gathered one layer ahead, layer inputs and attention outputs kept on the host and fetched back, gradients reduced
// behind. For counting, packing and pricing at real sizes.
#pragma once

#include "step/step_context.h"

namespace megatoken::testing_step {

struct DecoderShape {
  int64 layers = 64;
  int64 tokens = 131072;  // on this rank
  int64 keys = 1048576;
  int64 hidden = 5120;
  int64 heads = 64;
  int64 kv_heads = 8;
  int64 head_dim = 128;
  int64 intermediate = 25600;
  int64 groups = 8;
  int64 blocks = 8;
  int64 tiles = 32;
  int64 ranks = 8;
};

class DecoderProgram {
 public:
  explicit DecoderProgram(const DecoderShape& shape) : d(shape) {}

  void run(StepContext& ctx) {
    const int64 layer_elements = 4 * d.hidden * d.heads * d.head_dim / 2 + 3 * d.hidden * d.intermediate;
    const int64 shard = (layer_elements + d.ranks - 1) / d.ranks;
    const View weights = ctx.external("weights", d.layers, shard, DType::bf16, nullptr);
    const View gradients = ctx.external("gradients", d.layers, shard, DType::f32, nullptr);
    Array inputs = ctx.array("layer inputs", d.layers, d.tokens, d.hidden, DType::bf16, Place::host);
    Array outputs = ctx.array("attention outputs", d.layers, d.tokens, d.heads * d.head_dim, DType::bf16, Place::host);
    Buffer x = ctx.buffer("x", d.tokens, d.hidden, DType::bf16);
    ctx.op("embedding", memory(x), {out(x)}, {});

    Ring gathered = ctx.ring("layer weights", 2, 1, shard * d.ranks, DType::bf16);
    Buffer next = gathered.acquire();
    Ticket ready = gather(ctx, weights, 0, next);
    for (const int64 i : ctx.loop("layer", d.layers)) {
      Buffer w = std::move(next);
      const Ticket mine = ready;
      if (i + 1 < d.layers) {
        next = gathered.acquire();
        ready = gather(ctx, weights, i + 1, next);
      }
      ctx.wait(mine, "layer weights");
      Buffer kept = ctx.buffer("kept x", d.tokens, d.hidden, DType::bf16);
      ctx.op("copy", memory(x), {in(x), out(kept)}, {});
      const Ticket saved = ctx.async(StreamId::d2h, "save x", transfer(kept), {in(kept), out(inputs.at(i))}, {}, {});
      Buffer o = ctx.buffer("o", d.tokens, d.heads * d.head_dim, DType::bf16);
      for (const int64 g : ctx.loop("group", d.groups)) attend(ctx, w, x, o, g, false);
      const Ticket saved_o = ctx.async(StreamId::d2h, "save o", transfer(o), {in(o), out(outputs.at(i))}, {}, {});
      tile_loop(ctx, w, x, o, false);
      ctx.wait(saved, "x saved");
      ctx.wait(saved_o, "o saved");
    }
    next = gathered.acquire();
    ready = gather(ctx, weights, d.layers - 1, next);
    Ring fetched_x = ctx.ring("fetched x", 2, d.tokens, d.hidden, DType::bf16);
    Buffer next_x = fetched_x.acquire();
    Ticket x_ready = fetch(ctx, inputs.at(d.layers - 1), next_x);
    for (const int64 i : ctx.loop("backward", d.layers, {.reverse = true})) {
      Buffer w = std::move(next);
      Buffer xi = std::move(next_x);
      const Ticket mine = ready, mine_x = x_ready;
      Buffer o = ctx.buffer("o", d.tokens, d.heads * d.head_dim, DType::bf16);
      const Ticket o_ready = fetch(ctx, outputs.at(i), o);
      if (i > 0) {
        next = gathered.acquire();
        ready = gather(ctx, weights, i - 1, next);
        next_x = fetched_x.acquire();
        x_ready = fetch(ctx, inputs.at(i - 1), next_x);
      }
      ctx.wait(mine, "layer weights");
      ctx.wait(mine_x, "layer input");
      ctx.wait(o_ready, "attention output");
      Buffer dw = ctx.buffer("layer gradients", 1, shard * d.ranks, DType::f32);
      ctx.op("zero", memory(dw), {out(dw)}, {});
      tile_loop(ctx, w, xi, o, true);
      Buffer dx = ctx.buffer("dx", d.tokens, d.hidden, DType::f32);
      ctx.op("zero", memory(dx), {out(dx)}, {});
      for (const int64 g : ctx.loop("group", d.groups)) attend(ctx, w, xi, o, g, true);
      ctx.op("dx", memory(dx), {in(dx), inout(x), inout(dw)}, {});
      dx.reset();
      const Ticket reduced = ctx.async(StreamId::exchange, "reduce gradients", {CostKind::exchange, 0, bytes(dw)},
                                       {in(dw), inout(gradients.row_range(i, 1))}, {}, {});
      ctx.wait(reduced, "layer gradients");
    }
  }

 private:
  static double bytes(const View& v) { return static_cast<double>(v.bytes()); }
  static Cost memory(const View& v) { return {CostKind::memory, 0, 2 * bytes(v)}; }
  static Cost transfer(const View& v) { return {CostKind::transfer, 0, bytes(v)}; }
  static Cost gemm(int64 m, int64 n, int64 k) {
    return {CostKind::gemm, 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k), 0};
  }
  Ticket gather(StepContext& ctx, const View& weights, int64 i, const View& to) {
    return ctx.async(StreamId::exchange, "gather weights", {CostKind::exchange, 0, bytes(to)},
                     {in(weights.row_range(i, 1)), out(to)}, {}, {});
  }
  Ticket fetch(StepContext& ctx, const View& from, const View& to) {
    return ctx.async(StreamId::h2d, "fetch", transfer(to), {in(from), out(to)}, {}, {});
  }

  void attend(StepContext& ctx, const View& w, const View& x, const View& o, int64 g, bool backward) {
    const int64 q_cols = d.heads / d.groups * d.head_dim;
    const int64 kv_cols = d.kv_heads / d.groups * d.head_dim;
    Buffer q = ctx.buffer("q", d.tokens, q_cols, DType::bf16);
    Buffer kv = ctx.buffer("own kv", d.tokens, 2 * kv_cols, DType::bf16);
    ctx.op("qkv", gemm(d.tokens, q_cols + 2 * kv_cols, d.hidden), {in(w), in(x), out(q), out(kv)}, {});
    Buffer keys = ctx.buffer("kv", d.keys, 2 * kv_cols, DType::bf16);
    const Ticket gathered =
        ctx.async(StreamId::exchange, "gather kv", {CostKind::exchange, 0, bytes(keys)}, {in(kv), out(keys)}, {}, {});
    ctx.wait(gathered, "kv");
    Buffer dq, dkv;
    if (backward) {
      dq = ctx.buffer("dq", d.tokens, q_cols, DType::f32);
      dkv = ctx.buffer("dkv", d.keys, 2 * kv_cols, DType::f32);
      ctx.op("zero", memory(dq), {out(dq), out(dkv)}, {});
    }
    const View part = o.col_range(g * q_cols, q_cols);
    const int64 block = d.keys / d.blocks;
    const double pairs =
        static_cast<double>(d.tokens) * static_cast<double>(block) / 2 * static_cast<double>(q_cols) * 4;
    for (const int64 b : ctx.loop("block", d.blocks)) {
      Buffer workspace = ctx.buffer("workspace", 1, d.tokens * 64, DType::u8);
      const View k = View(keys).row_range(b * block, block);
      if (!backward) {
        Buffer partial = ctx.buffer("partial o", d.tokens, q_cols, DType::f32);
        ctx.op("attention", {CostKind::attention_forward, pairs, 0}, {in(q), in(k), out(partial), out(workspace)}, {});
        ctx.op("merge", memory(partial), {in(partial), b == 0 ? out(part) : inout(part)}, {});
      } else {
        const View dk = View(dkv).row_range(b * block, block);
        ctx.op("attention backward", {CostKind::attention_backward, 2.5 * pairs, 0},
               {in(q), in(k), in(part), inout(dq), inout(dk), out(workspace)}, {});
      }
    }
    if (backward)
      ctx.op("qkv backward", gemm(d.tokens, 2 * (q_cols + 2 * kv_cols), d.hidden), {in(dq), in(dkv), in(w)}, {});
  }

  void tile_loop(StepContext& ctx, const View& w, const View& x, const View& o, bool backward) {
    const int64 rows = d.tokens / d.tiles;
    for (const int64 t : ctx.loop(backward ? "tile back" : "tile", d.tiles)) {
      Buffer h = ctx.buffer("h", rows, d.hidden, DType::bf16);
      ctx.op("output projection", gemm(rows, d.hidden, d.heads * d.head_dim),
             {in(w), in(o.row_range(t * rows, rows)), in(x.row_range(t * rows, rows)), out(h)}, {});
      Buffer gate = ctx.buffer("gate up", rows, 2 * d.intermediate, DType::bf16);
      ctx.op("gate up", gemm(rows, 2 * d.intermediate, d.hidden), {in(w), in(h), out(gate)}, {});
      Buffer act = ctx.buffer("act", rows, d.intermediate, DType::bf16);
      ctx.op("swiglu", memory(gate), {in(gate), out(act)}, {});
      if (backward) {
        Buffer dact = ctx.buffer("dact", rows, d.intermediate, DType::bf16);
        ctx.op("down backward", gemm(rows, 2 * d.intermediate, d.hidden), {in(act), in(w), out(dact)}, {});
        act.reset();
        Buffer dgate = ctx.buffer("dgate up", rows, 2 * d.intermediate, DType::bf16);
        ctx.op("swiglu backward", memory(gate), {in(gate), in(dact), out(dgate)}, {});
        dact.reset();
        ctx.op("gate up backward", gemm(rows, 4 * d.intermediate, d.hidden), {in(dgate), in(w), inout(h)}, {});
      } else {
        ctx.op("down", gemm(rows, d.hidden, d.intermediate), {in(act), in(w), inout(h)}, {});
        ctx.op("residual", memory(h), {in(h), inout(x.row_range(t * rows, rows))}, {});
      }
    }
  }

  DecoderShape d;
};

}  // namespace megatoken::testing_step
