#include "attention/key_value_exchange.h"

#include <algorithm>

namespace megatoken {
namespace {

// Phases that cost the same.
bool alike(const AttentionPhase& a, const AttentionPhase& b) {
  return std::equal(a.blocks.begin(), a.blocks.end(), b.blocks.begin(), b.blocks.end(),
                    [](const AttentionBlock& x, const AttentionBlock& y) {
                      return x.query_count == y.query_count && x.key_count == y.key_count && x.causal == y.causal &&
                             x.first == y.first;
                    });
}

}  // namespace

KeyValueExchange::KeyValueExchange(StepOps& ops, const SequencePart& part, const HeadShape& shape, DType dtype,
                                   int64 lead)
    : ops_(ops), part_(part), shape_(shape), dtype_(dtype) {
  const int64 cols = 2 * shape.kv_cols();
  auto& ctx = ops.context();
  // The ring rotates through two buffers of its own kind: the one worked on and the one arriving.
  local_ = ctx.ring("keys and values", part.ring() ? 2 : lead + 1, part.rows(), cols, dtype);
  if (part.layout.cp() > 1 && !part.ring())
    gathered_ = ctx.ring("gathered keys and values", lead + 1, part.layout.gathered_rows(), cols, dtype);
}

Buffer KeyValueExchange::local() { return local_.acquire(); }

View KeyValueExchange::half(const View& rows, int64 index, int64 ranks) const {
  return rows.row_range(ranks * part_.layout.half_begin(index), ranks * part_.layout.slot(index));
}

KeyValueExchange::Pending KeyValueExchange::start(Buffer local) {
  Pending pending;
  pending.local = std::move(local);
  const int64 cp = part_.layout.cp();
  if (cp == 1 || part_.ring()) return pending;
  pending.gathered = gathered_.acquire();
  for (int64 h = 0; h < part_.layout.halves(); ++h)
    pending.ticket = ops_.all_gather("gather keys and values", part_.cp_group, cp, half(pending.local, h, 1),
                                     half(pending.gathered, h, cp));
  return pending;
}

void KeyValueExchange::forward(Pending pending, const ForwardVisit& visit) {
  const auto call = [&](const AttentionPhase& phase, const View& rows) {
    visit(phase, rows.col_range(0, shape_.kv_cols()), rows.col_range(shape_.kv_cols(), shape_.kv_cols()));
  };
  if (part_.ring()) {
    ring_phases(std::move(pending.local), call);
    return;
  }
  ops_.context().wait(pending.ticket, "keys and values of the head group");
  if (pending.gathered.held()) pending.local.reset();
  call(part_.schedule.phases[0], pending.gathered.held() ? pending.gathered : pending.local);
}

Buffer KeyValueExchange::backward(Pending pending, const BackwardVisit& visit) {
  return part_.ring() ? backward_ring(std::move(pending), visit) : backward_gathered(std::move(pending), visit);
}

Buffer KeyValueExchange::backward_gathered(Pending pending, const BackwardVisit& visit) {
  auto& ctx = ops_.context();
  const int64 cp = part_.layout.cp();
  const int64 kv = shape_.kv_cols();
  ctx.wait(pending.ticket, "keys and values of the head group");
  if (pending.gathered.held()) pending.local.reset();
  const View rows = pending.gathered.held() ? pending.gathered : pending.local;
  Buffer own = ctx.buffer("key and value gradients", part_.rows(), 2 * kv, DType::f32);
  Buffer all;
  if (cp > 1) all = ctx.buffer("gathered key and value gradients", part_.layout.gathered_rows(), 2 * kv, DType::f32);
  const View gradients = cp > 1 ? all : own;
  ops_.fill_zero("zero key and value gradients", {gradients});
  visit(part_.schedule.phases[0], rows.col_range(0, kv), rows.col_range(kv, kv), gradients.col_range(0, kv),
        gradients.col_range(kv, kv));
  if (cp == 1) return own;
  Ticket reduced;
  for (int64 h = 0; h < part_.layout.halves(); ++h)
    reduced =
        ops_.reduce_scatter("reduce key and value gradients", part_.cp_group, cp, half(all, h, cp), half(own, h, 1));
  ctx.wait(reduced, "key and value gradients of the head group");
  return own;
}

Ticket KeyValueExchange::rotate(std::string_view name, const View& from, const View& to) {
  const int64 cp = part_.layout.cp();
  const int64 next = (part_.cp_rank + 1) % cp;
  const int64 previous = (part_.cp_rank + cp - 1) % cp;
  Group* group = part_.cp_group;
  const Cost cost{CostKind::exchange, 0, static_cast<double>(from.bytes())};
  return ops_.context().async(StreamId::exchange, name, cost, {in(from), out(to)}, {}, ops_.kernel([=](Stream& s) {
    if (from.bytes() > 0) group->send_receive(s, from.data, next, to.data, previous, from.bytes());
  }));
}

void KeyValueExchange::ring_phases(Buffer own, const std::function<void(const AttentionPhase&, const View&)>& visit) {
  auto& ctx = ops_.context();
  Buffer resident = std::move(own);
  const auto& phases = part_.schedule.phases;
  const auto last = static_cast<int64>(phases.size()) - 1;
  for (int64 begin = 0; begin <= last;) {
    // Neighbours that cost the same are one loop, which the planner counts once; the last one has nothing to rotate.
    const auto at = [&](int64 p) -> const AttentionPhase& { return phases[static_cast<std::size_t>(p)]; };
    int64 end = begin + 1;
    while (end < last && alike(at(begin), at(end))) ++end;
    for (const int64 i : ctx.loop("phase", end - begin)) {
      const int64 p = begin + i;
      Buffer arriving;
      Ticket ticket;
      if (p < last) {
        arriving = local_.acquire();
        ticket = rotate("rotate keys and values", resident, arriving);
      }
      visit(at(p), resident);
      ctx.wait(ticket, "keys and values of the next phase");
      resident.reset();
      resident = std::move(arriving);
    }
    begin = end;
  }
}

Buffer KeyValueExchange::backward_ring(Pending pending, const BackwardVisit& visit) {
  auto& ctx = ops_.context();
  const int64 kv = shape_.kv_cols();
  Ring travelling = ctx.ring("travelling key and value gradients", 2, part_.rows(), 2 * kv, DType::f32);
  Buffer sum;  // of the resident block over the ranks it has visited, on its way
  Ticket arrival;
  ring_phases(std::move(pending.local), [&](const AttentionPhase& phase, const View& rows) {
    const bool first = !sum.held();
    if (first) sum = travelling.acquire();
    Buffer part;
    if (!first) part = ctx.buffer("key and value gradients of a phase", part_.rows(), 2 * kv, DType::f32);
    const View target = first ? sum : part;
    ops_.fill_zero("zero key and value gradients", {target});
    visit(phase, rows.col_range(0, kv), rows.col_range(kv, kv), target.col_range(0, kv), target.col_range(kv, kv));
    if (!first) {
      ctx.wait(arrival, "travelling key and value gradients");
      ops_.accumulate("add key and value gradients", {part, sum});
    }
    Buffer next = travelling.acquire();
    arrival = rotate("rotate key and value gradients", sum, next);
    sum = std::move(next);
  });
  ctx.wait(arrival, "own key and value gradients");
  Buffer own = ctx.buffer("key and value gradients", part_.rows(), 2 * kv, DType::f32);
  ops_.convert("own key and value gradients", {sum, own});
  return own;
}

}  // namespace megatoken
