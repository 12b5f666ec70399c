#include "plan/price.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"

namespace megatoken {
namespace {

constexpr std::size_t kCompute = 0;
constexpr std::size_t index_of(StreamId stream) { return static_cast<std::size_t>(stream); }

void check_rate(double rate, const char* name) {
  if (!(rate > 0) || !std::isfinite(rate))
    throw ConfigError("machine rate {} is {}: it must be above zero", name, rate);
}

class Simulation {
 public:
  Simulation(const CountedStep& step, const MachineRates& rates) : step_(step), rates_(rates) {}

  StepPrice run() {
    for (const StepEvent& event : step_.events) {
      switch (event.type) {
        case StepEvent::Type::work:
          work(event);
          break;
        case StepEvent::Type::join:
          join(event);
          break;
        case StepEvent::Type::period_begin:
          periods_.push_back({now_, busy_, done_sizes()});
          break;
        case StepEvent::Type::period_end:
          end_period(event.multiplicity);
          break;
      }
    }
    price_.total_s = now_[kCompute];
    return std::move(price_);
  }

 private:
  using Times = std::array<double, kNumStreams>;
  struct Period {
    Times start;
    Times busy;                                 // of each stream before it, repeats not counted
    std::array<std::size_t, kNumStreams> done;  // ops issued before it
  };

  std::array<std::size_t, kNumStreams> done_sizes() const {
    std::array<std::size_t, kNumStreams> sizes{};
    for (std::size_t s = 0; s < sizes.size(); ++s) sizes[s] = done_[s].size();
    return sizes;
  }

  double done_at(const Ticket& ticket) const {
    return done_[index_of(ticket.stream)][static_cast<std::size_t>(ticket.seq - 1)];
  }

  double rate_of(const StepEvent& event) const {
    const auto rate = [&](double sustained, const UnitRate& units) {
      if (units.short_flops == 0 || event.units == 0) return sustained;
      return std::min(sustained, units.short_flops * event.units / (event.units + units.half));
    };
    switch (event.kind) {
      case WorkKind::gemm:
        return rate(rates_.gemm_flops, rates_.gemm_units);
      case WorkKind::attention_forward:
        return rate(rates_.attention_forward_flops, rates_.attention_forward_units);
      case WorkKind::attention_backward:
        return rate(rates_.attention_backward_flops, rates_.attention_backward_units);
      default:
        return 0;  // bytes alone
    }
  }

  double duration(const StepEvent& event) const {
    double bytes_rate = rates_.memory_bytes;
    if (event.kind == WorkKind::transfer)
      bytes_rate = event.stream == StreamId::d2h ? rates_.d2h_bytes : rates_.h2d_bytes;
    if (event.kind == WorkKind::exchange) bytes_rate = rates_.exchange_bytes;
    const double flops_rate = rate_of(event);
    const double flops_s = flops_rate > 0 ? event.flops / flops_rate : 0;
    return rates_.op_overhead_s + std::max(flops_s, event.bytes / bytes_rate);
  }

  // The end of a transfer that begins at `start` and takes `alone` seconds on an idle link.
  double transfer_end(std::size_t stream, double start, double alone) const {
    const std::size_t other = stream == index_of(StreamId::h2d) ? index_of(StreamId::d2h) : index_of(StreamId::h2d);
    const double own = stream == index_of(StreamId::h2d) ? rates_.h2d_bytes : rates_.d2h_bytes;
    const double others = stream == index_of(StreamId::h2d) ? rates_.d2h_bytes : rates_.h2d_bytes;
    // The share of the own rate left while the other direction is busy.
    const double share = std::clamp((rates_.duplex_bytes - others) / own, 0.05, 1.0);
    const double free_until = std::max(start, link_[other].begin);
    const double busy_until = std::max(free_until, link_[other].end);
    const double before = free_until - start;
    if (alone <= before || share == 1.0) return start + alone;
    const double during = (busy_until - free_until) * share;
    if (alone - before <= during) return free_until + (alone - before) / share;
    return busy_until + alone - before - during;
  }

  void work(const StepEvent& event) {
    const std::size_t s = index_of(event.stream);
    const double alone = duration(event);
    double start = now_[s];
    if (s != kCompute) {
      start = std::max(start, now_[kCompute]);
      for (std::int64_t i = 0; i < event.num_after; ++i)
        start = std::max(start, done_at(step_.after[static_cast<std::size_t>(event.first_after + i)]));
    }
    double end = start + alone;
    if (event.kind == WorkKind::transfer && (event.stream == StreamId::h2d || event.stream == StreamId::d2h)) {
      end = transfer_end(s, start, alone);
      if (start > link_[s].end) link_[s].begin = start;
      link_[s].end = end;
    }
    now_[s] = end;
    busy_[s] += end - start;
    done_[s].push_back(end);
    const auto multiplicity = static_cast<double>(event.multiplicity);
    price_.busy_s[s] += (end - start) * multiplicity;
    if (s == kCompute) price_.compute_s[static_cast<std::size_t>(event.kind)] += (end - start) * multiplicity;
  }

  void join(const StepEvent& event) {
    const double stall = done_at({event.stream, event.seq}) - now_[kCompute];
    if (stall <= 0) return;
    now_[kCompute] += stall;
    const double exposed = stall * static_cast<double>(event.multiplicity);
    price_.exposed_s[index_of(event.stream)] += exposed;
    price_.exposed_by_reason[step_.names[static_cast<std::size_t>(event.name)]] += exposed;
  }

  // The period was seen once: all that happened in it moves on by the repeats that were not.
  void end_period(int64 repeats) {
    const Period period = periods_.back();
    periods_.pop_back();
    const auto more = static_cast<double>(repeats - 1);
    const double compute = now_[kCompute] - period.start[kCompute];
    for (std::size_t s = 0; s < now_.size(); ++s) {
      const double worked = busy_[s] - period.busy[s];
      // A stream that stood idle before the period did not need all the time since then for it.
      const double advance = s == kCompute ? compute : std::min(now_[s] - period.start[s], std::max(compute, worked));
      const double shift = more * std::max(0.0, advance);
      now_[s] += shift;
      busy_[s] += more * worked;
      for (std::size_t i = period.done[s]; i < done_[s].size(); ++i) done_[s][i] += shift;
      if (done_[s].size() > period.done[s]) {
        link_[s].begin += shift;
        link_[s].end += shift;
      }
    }
  }

  const CountedStep& step_;
  const MachineRates& rates_;
  Times now_{};
  Times busy_{};
  std::array<std::vector<double>, kNumStreams> done_;  // when each op of a stream was done, by seq - 1
  struct Busy {
    double begin = 0;
    double end = 0;
  };
  std::array<Busy, kNumStreams> link_{};  // h2d, d2h: the last stretch without a pause
  std::vector<Period> periods_;
  StepPrice price_;
};

}  // namespace

StepPrice price(const CountedStep& step, const MachineRates& rates) {
  check_rate(rates.gemm_flops, "gemm_flops");
  check_rate(rates.attention_forward_flops, "attention_forward_flops");
  check_rate(rates.attention_backward_flops, "attention_backward_flops");
  check_rate(rates.memory_bytes, "memory_bytes");
  check_rate(rates.h2d_bytes, "h2d_bytes");
  check_rate(rates.d2h_bytes, "d2h_bytes");
  check_rate(rates.duplex_bytes, "duplex_bytes");
  check_rate(rates.exchange_bytes, "exchange_bytes");
  if (!(rates.op_overhead_s >= 0)) throw ConfigError("machine rate op_overhead_s is {}", rates.op_overhead_s);
  return Simulation(step, rates).run();
}

}  // namespace megatoken
