#include "model/sparse_mlp.h"

namespace megatoken {

// The tokens' rows by expert, see ops/experts.h.
struct SparseMlp::Sorted {
  Sorted(StepOps& ops, const Routing& routing, int64 experts)
      : offsets(ops.context().buffer("expert offsets", 1, experts + 1, DType::i32)),
        source(ops.context().buffer("expert row sources", routing.experts.elements(), 1, DType::i32)),
        position(ops.context().buffer("expert row positions", routing.experts.rows, routing.experts.cols, DType::i32)) {
    ops.sort_by_expert("sort by expert", {routing.experts, offsets, source, position, {}});
  }
  int64 rows() const { return source.view().rows; }

  Buffer offsets, source, position;
};

void SparseMlp::grouped(std::string_view name, GroupedProduct product, const View& a, const View& b, const View& d,
                        const View& offsets) {
  ops_.grouped_gemm(name, {product, a, b, d, offsets, {}});
}

void SparseMlp::route(const LayerViews& w, const View& h, const Routing& routing, const Balance& balance) {
  Buffer logits = ops_.context().buffer("router logits", h.rows, spec_.experts.count, DType::f32);
  ops_.gemm("router", {h, w.router, logits, {}, false, true});
  ops_.router("choice of experts", {logits, routing.experts, routing.weights, spec_.experts.normalize});
  if (!balance.sums.absent())
    ops_.router_statistics("router statistics", {logits, routing.experts, balance.counted, balance.sums});
}

void SparseMlp::forward(const LayerViews& w, const View& h, const Routing& routing, const View& y) {
  auto& ctx = ops_.context();
  const int64 width = spec_.experts.intermediate_size, hidden = spec_.hidden_size;
  const Sorted sorted(ops_, routing, spec_.experts.count);
  const int64 n = sorted.rows();
  Buffer gate_up = ctx.buffer("expert gate and up", n, 2 * width, dtype_);
  {
    Buffer inputs = ctx.buffer("expert inputs", n, hidden, dtype_);
    ops_.gather_rows("gather expert inputs", {h, sorted.source, inputs});
    grouped("expert gate and up projection", GroupedProduct::forward, inputs, w.expert_gate_up, gate_up,
            sorted.offsets);
  }
  Buffer act = ctx.buffer("expert activation", n, width, dtype_);
  ops_.swiglu("expert swiglu", {gate_up, act});
  gate_up.reset();
  {
    Buffer outputs = ctx.buffer("expert outputs", n, hidden, dtype_);
    grouped("expert down projection", GroupedProduct::forward, act, w.expert_down, outputs, sorted.offsets);
    act.reset();
    ops_.combine_experts("combine experts", {outputs, sorted.position, routing.weights, y, y});
  }
  if (spec_.experts.shared_intermediate_size > 0) forward_shared(w, h, y);
}

void SparseMlp::forward_shared(const LayerViews& w, const View& h, const View& y) {
  auto& ctx = ops_.context();
  const int64 n = h.rows, width = spec_.experts.shared_intermediate_size;
  Buffer gate = ctx.buffer("shared expert gate", n, 1, DType::f32);
  ops_.gemm("shared expert gate", {h, w.shared_gate, gate, {}, false, true});
  ops_.sigmoid("shared expert gate", {gate, gate});
  Buffer gate_up = ctx.buffer("shared expert gate and up", n, 2 * width, dtype_);
  ops_.gemm("shared expert gate and up projection", {h, w.gate_up, gate_up, {}, false, true});
  Buffer act = ctx.buffer("shared expert activation", n, width, dtype_);
  ops_.swiglu("shared expert swiglu", {gate_up, act});
  Buffer output = ctx.buffer("shared expert output", n, spec_.hidden_size, dtype_);
  ops_.gemm("shared expert down projection", {act, w.down, output, {}, false, true});
  ops_.combine_experts("add shared expert", {output, {}, gate, y, y});
}

Buffer SparseMlp::backward(const LayerViews& w, const LayerViews& g, const View& h, const Routing& routing,
                           const Balance& balance, const View& dout) {
  auto& ctx = ops_.context();
  const int64 width = spec_.experts.intermediate_size, hidden = spec_.hidden_size;
  const Sorted sorted(ops_, routing, spec_.experts.count);
  const int64 n = sorted.rows();
  Buffer dweights = ctx.buffer("expert weight gradients", routing.weights.rows, routing.weights.cols, DType::f32);
  Buffer dh;
  {
    Buffer inputs = ctx.buffer("expert inputs", n, hidden, dtype_);
    ops_.gather_rows("gather expert inputs", {h, sorted.source, inputs});
    Buffer gate_up = ctx.buffer("expert gate and up", n, 2 * width, dtype_);
    grouped("expert gate and up projection", GroupedProduct::forward, inputs, w.expert_gate_up, gate_up,
            sorted.offsets);
    {
      Buffer douts = ctx.buffer("expert output gradients", n, hidden, dtype_);
      ops_.gather_rows("gather expert output gradients", {dout, sorted.source, douts});
      Buffer dact = ctx.buffer("expert activation gradient", n, width, dtype_);
      grouped("expert down projection input gradient", GroupedProduct::input_gradient, douts, w.expert_down, dact,
              sorted.offsets);
      ops_.expert_swiglu_backward("expert swiglu backward",
                                  {gate_up, dact, sorted.position, routing.weights, dweights});
      grouped("expert down projection weight gradient", GroupedProduct::weight_gradient, douts, dact, g.expert_down,
              sorted.offsets);
    }
    grouped("expert gate and up projection weight gradient", GroupedProduct::weight_gradient, gate_up, inputs,
            g.expert_gate_up, sorted.offsets);
    // The inputs' gradients take the inputs' place.
    grouped("expert gate and up projection input gradient", GroupedProduct::input_gradient, gate_up, w.expert_gate_up,
            inputs, sorted.offsets);
    gate_up.reset();
    dh = ctx.buffer("normalized residual gradient", h.rows, hidden, DType::f32);
    ops_.combine_experts("sum expert input gradients", {inputs, sorted.position, {}, {}, dh});
  }
  backward_router(w, g, h, routing, balance, dweights, dh);
  if (spec_.experts.shared_intermediate_size > 0) backward_shared(w, g, h, dout, dh);
  return dh;
}

// The logits are computed again, the choice is not.
void SparseMlp::backward_router(const LayerViews& w, const LayerViews& g, const View& h, const Routing& routing,
                                const Balance& balance, const View& dweights, const View& dh) {
  auto& ctx = ops_.context();
  const int64 n = h.rows, experts = spec_.experts.count;
  Buffer logits = ctx.buffer("router logits", n, experts, DType::f32);
  ops_.gemm("router", {h, w.router, logits, {}, false, true});
  Buffer rounded;
  if (dtype_ != DType::f32) rounded = ctx.buffer("router logit gradients", n, experts, dtype_);
  const View dlogits = rounded.held() ? rounded.view() : logits.view();
  ops_.router_backward("router backward",
                       {logits, routing.experts, routing.weights, dweights, balance.gradient,
                        balance.gradient.absent() ? View() : balance.counted, dlogits, spec_.experts.normalize});
  ops_.gemm("router weight gradient", {dlogits, h, g.router, g.router, true, false});
  ops_.gemm("router input gradient", {dlogits, w.router, dh, dh, false, false});
}

void SparseMlp::backward_shared(const LayerViews& w, const LayerViews& g, const View& h, const View& dout,
                                const View& dh) {
  auto& ctx = ops_.context();
  const int64 n = h.rows, width = spec_.experts.shared_intermediate_size;
  Buffer gate = ctx.buffer("shared expert gate", n, 1, DType::f32);
  Buffer dgate = ctx.buffer("shared expert gate gradient", n, 1, DType::f32);
  ops_.gemm("shared expert gate", {h, w.shared_gate, gate, {}, false, true});
  ops_.sigmoid("shared expert gate", {gate, gate});
  Buffer gate_up = ctx.buffer("shared expert gate and up", n, 2 * width, dtype_);
  ops_.gemm("shared expert gate and up projection", {h, w.gate_up, gate_up, {}, false, true});
  Buffer dact = ctx.buffer("shared expert activation gradient", n, width, dtype_);
  ops_.gemm("shared expert down projection input gradient", {dout, w.down, dact, {}, false, false});
  ops_.expert_swiglu_backward("shared expert swiglu backward", {gate_up, dact, {}, gate, dgate});
  ops_.gemm("shared expert down projection weight gradient", {dout, dact, g.down, g.down, true, false});
  ops_.gemm("shared expert gate and up projection weight gradient", {gate_up, h, g.gate_up, g.gate_up, true, false});
  ops_.gemm("shared expert gate and up projection input gradient", {gate_up, w.gate_up, dh, dh, false, false});
  Buffer dlogit = ctx.buffer("shared expert gate logit gradient", n, 1, dtype_);
  ops_.sigmoid_backward("shared expert gate backward", {gate, dgate, dlogit});
  ops_.gemm("shared expert gate weight gradient", {dlogit, h, g.shared_gate, g.shared_gate, true, false});
  ops_.gemm("shared expert gate input gradient", {dlogit, w.shared_gate, dh, dh, false, false});
}

}  // namespace megatoken
