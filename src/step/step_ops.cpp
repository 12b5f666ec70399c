#include "step/step_ops.h"

namespace megatoken {

void StepOps::gemm(std::string_view name, const Gemm& op) {
  const auto run = table_.gemm;
  const bool in_place = !op.c.absent() && op.c.data == op.d.data;
  if (in_place)
    context_.op(name, cost_of(op), {in(op.a), in(op.b), inout(op.d)}, kernel([=](Stream& s) { run(s, op); }));
  else
    context_.op(name, cost_of(op), {in(op.a), in(op.b), in(op.c), out(op.d)}, kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::rms_norm(std::string_view name, const RmsNorm& op) {
  const auto run = table_.rms_norm;
  context_.op(name, cost_of(op), {in(op.x), in(op.weight), out(op.y)}, kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::rms_norm_backward(std::string_view name, const RmsNormBackward& op) {
  const auto run = table_.rms_norm_backward;
  context_.op(name, cost_of(op), {in(op.x), in(op.weight), in(op.dy), in(op.residual), out(op.dx), inout(op.dweight)},
              kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::norm_rope(std::string_view name, const NormRope& op) {
  const auto run = table_.norm_rope;
  context_.op(name, cost_of(op),
              {in(op.x), in(op.weight), in(op.positions), in(op.frequency_index), in(op.inverse_frequency), out(op.y)},
              kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::norm_rope_backward(std::string_view name, const NormRopeBackward& op) {
  const auto run = table_.norm_rope_backward;
  const NormRope& f = op.forward;
  context_.op(name, cost_of(op),
              {in(op.dy), in(f.x), in(f.weight), in(f.positions), in(f.frequency_index), in(f.inverse_frequency),
               out(op.dx), inout(op.dweight)},
              kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::swiglu(std::string_view name, const Swiglu& op) {
  const auto run = table_.swiglu;
  context_.op(name, cost_of(op), {in(op.gate_up), out(op.act)}, kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::swiglu_backward(std::string_view name, const SwigluBackward& op) {
  const auto run = table_.swiglu_backward;
  context_.op(name, cost_of(op), {in(op.gate_up), in(op.dact), out(op.dgate_up)},
              kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::embedding(std::string_view name, const Embedding& op) {
  const auto run = table_.embedding;
  context_.op(name, cost_of(op), {in(op.ids), in(op.table), out(op.y)}, kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::embedding_backward(std::string_view name, const EmbeddingBackward& op) {
  const auto run = table_.embedding_backward;
  context_.op(name, cost_of(op), {in(op.ids), in(op.dy), inout(op.dtable)}, kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::gather_rows(std::string_view name, const GatherRows& op) {
  const auto run = table_.gather_rows;
  context_.op(name, cost_of(op), {in(op.x), in(op.index), out(op.y)}, kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::scatter_rows(std::string_view name, const ScatterRows& op) {
  const auto run = table_.scatter_rows;
  context_.op(name, cost_of(op), {in(op.x), in(op.index), inout(op.y)}, kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::convert(std::string_view name, const Convert& op) {
  const auto run = table_.convert;
  context_.op(name, cost_of(op), {in(op.x), out(op.y)}, kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::accumulate(std::string_view name, const Accumulate& op) {
  const auto run = table_.accumulate;
  context_.op(name, cost_of(op), {in(op.x), inout(op.y)}, kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::add_bias(std::string_view name, const AddBias& op) {
  const auto run = table_.add_bias;
  context_.op(name, cost_of(op), {in(op.bias), inout(op.y)}, kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::bias_gradient(std::string_view name, const BiasGradient& op) {
  const auto run = table_.bias_gradient;
  context_.op(name, cost_of(op), {in(op.dy), inout(op.dbias)}, kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::fill_zero(std::string_view name, const FillZero& op) {
  const auto run = table_.fill_zero;
  context_.op(name, cost_of(op), {out(op.y)}, kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::sum_squares(std::string_view name, const SumSquares& op) {
  const auto run = table_.sum_squares;
  context_.op(name, cost_of(op), {in(op.x), inout(op.result)}, kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::cross_entropy(std::string_view name, const CrossEntropy& op) {
  const auto run = table_.cross_entropy;
  // The gradient may be written over the logits; otherwise the logits are left as scratch.
  const bool in_place = op.dlogits.data == op.logits.data;
  context_.op(name, cost_of(op),
              {inout(op.logits), in(op.labels), out(op.loss), out(op.correct), out(op.entropy),
               in_place ? inout(op.logits) : out(op.dlogits)},
              kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::adamw(std::string_view name, const Adamw& op) {
  const auto run = table_.adamw;
  context_.op(name, cost_of(op),
              {in(op.grad), inout(op.weight), inout(op.remainder), inout(op.exp_avg), inout(op.exp_avg_sq)},
              kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::router(std::string_view name, const Router& op) {
  const auto run = table_.router;
  context_.op(name, cost_of(op), {inout(op.logits), out(op.experts), out(op.weights)},
              kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::router_backward(std::string_view name, const RouterBackward& op) {
  const auto run = table_.router_backward;
  context_.op(name, cost_of(op),
              {in(op.logits), in(op.experts), in(op.weights), in(op.dweights), in(op.balance), in(op.counted),
               out(op.dlogits)},
              kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::router_statistics(std::string_view name, const RouterStatistics& op) {
  const auto run = table_.router_statistics;
  context_.op(name, cost_of(op), {in(op.probabilities), in(op.experts), in(op.counted), inout(op.sums)},
              kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::balance_loss(std::string_view name, const BalanceLoss& op) {
  const auto run = table_.balance_loss;
  context_.op(name, cost_of(op), {in(op.sums), out(op.loss), out(op.gradient)}, kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::combine_experts(std::string_view name, const CombineExperts& op) {
  const auto run = table_.combine_experts;
  const bool in_place = !op.addend.absent() && op.addend.data == op.out.data;
  context_.op(name, cost_of(op),
              {in(op.rows), in(op.position), in(op.weights), in(in_place ? View() : op.addend),
               in_place ? inout(op.out) : out(op.out)},
              kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::expert_swiglu_backward(std::string_view name, const ExpertSwigluBackward& op) {
  const auto run = table_.expert_swiglu_backward;
  context_.op(name, cost_of(op),
              {inout(op.gate_up), inout(op.dact), in(op.position), in(op.weights), out(op.dweights)},
              kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::sigmoid(std::string_view name, const Sigmoid& op) {
  const auto run = table_.sigmoid;
  context_.op(name, cost_of(op), {in(op.x), out(op.y)}, kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::sigmoid_backward(std::string_view name, const SigmoidBackward& op) {
  const auto run = table_.sigmoid_backward;
  context_.op(name, cost_of(op), {in(op.y), in(op.dy), out(op.dx)}, kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::sort_by_expert(std::string_view name, SortByExpert op) {
  const auto run = table_.sort_by_expert;
  Buffer workspace = context_.buffer("expert sort workspace", 1,
                                     sort_by_expert_workspace(op.experts.elements(), op.offsets.cols - 1), DType::u8);
  op.workspace = workspace;
  context_.op(name, cost_of(op), {in(op.experts), out(op.offsets), out(op.source), out(op.position), out(op.workspace)},
              kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::grouped_gemm(std::string_view name, GroupedGemm op) {
  const auto run = table_.grouped_gemm;
  Buffer workspace = context_.buffer("grouped product workspace", 1, table_.grouped_gemm_workspace(op), DType::u8);
  op.workspace = workspace;
  context_.op(name, cost_of(op),
              {in(op.a), in(op.b), in(op.offsets), out(op.workspace),
               op.product == GroupedProduct::weight_gradient ? inout(op.d) : out(op.d)},
              kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::attention_forward(std::string_view name, AttentionForward op) {
  const auto run = table_.attention_forward;
  Buffer workspace = context_.buffer("attention workspace", 1, table_.attention_forward_workspace(op), DType::u8);
  op.workspace = workspace;
  context_.op(name, cost_of(op), {in(op.q), in(op.k), in(op.v), out(op.o), out(op.lse), out(op.workspace)},
              kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::attention_merge(std::string_view name, const AttentionMerge& op) {
  const auto run = table_.attention_merge;
  if (op.first)
    context_.op(name, cost_of(op), {in(op.o_part), in(op.lse_part), out(op.o), out(op.lse)},
                kernel([=](Stream& s) { run(s, op); }));
  else
    context_.op(name, cost_of(op), {in(op.o_part), in(op.lse_part), inout(op.o), inout(op.lse)},
                kernel([=](Stream& s) { run(s, op); }));
}

void StepOps::attention_backward(std::string_view name, AttentionBackward op) {
  const auto run = table_.attention_backward;
  Buffer workspace = context_.buffer("attention workspace", 1, table_.attention_backward_workspace(op), DType::u8);
  op.workspace = workspace;
  context_.op(name, cost_of(op),
              {in(op.q), in(op.k), in(op.v), in(op.o), in(op.dout), in(op.lse), inout(op.dq), inout(op.dk),
               inout(op.dv), out(op.workspace)},
              kernel([=](Stream& s) { run(s, op); }));
}

Ticket StepOps::copy(StreamId stream, std::string_view name, const View& from, const View& to,
                     std::initializer_list<Ticket> after) {
  check(from.contiguous() && to.contiguous() && from.bytes() == to.bytes(), "copy {}: {} bytes to {}", name,
        from.bytes(), to.bytes());
  const Cost cost{CostKind::transfer, 0, static_cast<double>(from.bytes())};
  return context_.async(stream, name, cost, {in(from), out(to)}, after, kernel([=](Stream& s) {
                          if (from.bytes() > 0) s.copy(to.data, from.data, from.bytes());
                        }));
}

Ticket StepOps::all_gather(std::string_view name, Group* group, int64 ranks, const View& from, const View& to,
                           std::initializer_list<Ticket> after) {
  check(from.contiguous() && to.contiguous() && to.bytes() == ranks * from.bytes(),
        "all-gather {}: {} x {} to {} bytes", name, ranks, from.bytes(), to.bytes());
  const Cost cost{CostKind::exchange, 0, static_cast<double>((ranks - 1) * from.bytes())};
  return context_.async(StreamId::exchange, name, cost, {in(from), out(to)}, after, kernel([=](Stream& s) {
                          if (from.bytes() > 0) group->all_gather(s, from.data, to.data, from.bytes());
                        }));
}

Ticket StepOps::reduce_scatter(std::string_view name, Group* group, int64 ranks, const View& from, const View& to,
                               std::initializer_list<Ticket> after) {
  check(from.contiguous() && to.contiguous() && from.elements() == ranks * to.elements() && from.dtype == DType::f32 &&
            to.dtype == DType::f32,
        "reduce-scatter {}: {} to {} elements", name, from.elements(), to.elements());
  const Cost cost{CostKind::exchange, 0, static_cast<double>((ranks - 1) * to.bytes())};
  return context_.async(StreamId::exchange, name, cost, {in(from), out(to)}, after, kernel([=](Stream& s) {
                          if (to.elements() > 0)
                            group->reduce_scatter(s, from.as<float>(), to.as<float>(), to.elements());
                        }));
}

}  // namespace megatoken
