#include "plan/price.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace megatoken {
namespace {

constexpr MachineRates kRates{.gemm_flops = 100,
                              .attention_forward_flops = 50,
                              .attention_backward_flops = 25,
                              .memory_bytes = 1000,
                              .h2d_bytes = 10,
                              .d2h_bytes = 10,
                              .duplex_bytes = 15,
                              .exchange_bytes = 20};

class Steps {
 public:
  Steps() { step_.names = {"op", "why"}; }
  Ticket work(StreamId stream, WorkKind kind, double flops, double bytes, std::vector<Ticket> after = {},
              int64 multiplicity = 1) {
    StepEvent event;
    event.stream = stream;
    event.kind = kind;
    event.flops = flops;
    event.bytes = bytes;
    event.seq = ++issued_[static_cast<std::size_t>(stream)];
    event.multiplicity = multiplicity;
    event.first_after = static_cast<std::int64_t>(step_.after.size());
    event.num_after = static_cast<std::int64_t>(after.size());
    step_.after.insert(step_.after.end(), after.begin(), after.end());
    step_.events.push_back(event);
    return {stream, event.seq};
  }
  Ticket compute(double seconds, int64 multiplicity = 1) {
    return work(StreamId::compute, WorkKind::gemm, 100 * seconds, 0, {}, multiplicity);
  }
  Ticket transfer(StreamId stream, double seconds, std::vector<Ticket> after = {}, int64 multiplicity = 1) {
    return work(stream, WorkKind::transfer, 0, 10 * seconds, std::move(after), multiplicity);
  }
  void join(const Ticket& ticket, int64 multiplicity = 1) {
    StepEvent event;
    event.type = StepEvent::Type::join;
    event.stream = ticket.stream;
    event.seq = ticket.seq;
    event.name = 1;
    event.multiplicity = multiplicity;
    step_.events.push_back(event);
  }
  void period(StepEvent::Type type, int64 repeats) {
    StepEvent event;
    event.type = type;
    event.multiplicity = repeats;
    step_.events.push_back(event);
  }
  StepPrice priced() const { return price(step_, kRates); }

 private:
  CountedStep step_;
  std::array<int64, kNumStreams> issued_{};
};

TEST(Price, EachKindHasItsRate) {
  Steps steps;
  steps.work(StreamId::compute, WorkKind::gemm, 100, 10);
  steps.work(StreamId::compute, WorkKind::attention_forward, 100, 0);
  steps.work(StreamId::compute, WorkKind::attention_backward, 100, 0);
  steps.work(StreamId::compute, WorkKind::memory, 1e9, 3000);
  steps.work(StreamId::compute, WorkKind::gemm, 100, 2000);  // bound by its bytes
  const StepPrice p = steps.priced();
  EXPECT_DOUBLE_EQ(p.compute_s[static_cast<std::size_t>(WorkKind::gemm)], 3);
  EXPECT_DOUBLE_EQ(p.compute_s[static_cast<std::size_t>(WorkKind::attention_forward)], 2);
  EXPECT_DOUBLE_EQ(p.compute_s[static_cast<std::size_t>(WorkKind::attention_backward)], 4);
  EXPECT_DOUBLE_EQ(p.compute_s[static_cast<std::size_t>(WorkKind::memory)], 3);
  EXPECT_DOUBLE_EQ(p.total_s, 12);
}

TEST(Price, TransfersHideBehindCompute) {
  Steps steps;
  const Ticket fetched = steps.transfer(StreamId::h2d, 3);
  steps.compute(2);
  steps.join(fetched);
  steps.compute(1);
  const StepPrice p = steps.priced();
  EXPECT_DOUBLE_EQ(p.total_s, 4);
  EXPECT_DOUBLE_EQ(p.exposed_s[1], 1);
  EXPECT_DOUBLE_EQ(p.exposed_by_reason.at("why"), 1);
  EXPECT_DOUBLE_EQ(p.busy_s[1], 3);
}

TEST(Price, AnAsynchronousOpWaitsForComputeAtItsIssueAndForItsTickets) {
  Steps steps;
  steps.compute(2);
  const Ticket out = steps.transfer(StreamId::d2h, 1);                                        // 2..3
  const Ticket exchanged = steps.work(StreamId::exchange, WorkKind::exchange, 0, 40, {out});  // 3..5
  const Ticket in = steps.transfer(StreamId::h2d, 1, {exchanged});                            // 5..6
  steps.join(in);
  EXPECT_DOUBLE_EQ(steps.priced().total_s, 6);
  EXPECT_DOUBLE_EQ(steps.priced().exposed_s[1], 4);
}

TEST(Price, BothDirectionsAtOnceShareTheLink) {
  Steps steps;
  const Ticket in = steps.transfer(StreamId::h2d, 4);
  const Ticket out = steps.transfer(StreamId::d2h, 3);  // half its rate until 4, then whole: 2 + 1 seconds of work
  steps.join(in);
  steps.join(out);
  EXPECT_DOUBLE_EQ(steps.priced().total_s, 5);
  Steps longer;
  const Ticket a = longer.transfer(StreamId::h2d, 40);
  const Ticket b = longer.transfer(StreamId::d2h, 3);  // ends within
  longer.join(b);
  EXPECT_DOUBLE_EQ(longer.priced().total_s, 6);
  longer.join(a);
  EXPECT_DOUBLE_EQ(longer.priced().total_s, 40);
}

TEST(Price, APeriodIsMultiplied) {
  Steps flat, collapsed;
  for (const bool whole : {true, false}) {
    Steps& steps = whole ? flat : collapsed;
    Ticket fetched = steps.transfer(StreamId::h2d, 3);
    const auto iteration = [&](int64 multiplicity) {
      const Ticket mine = fetched;
      fetched = steps.transfer(StreamId::h2d, 3, {}, multiplicity);
      steps.join(mine, multiplicity);
      steps.compute(2, multiplicity);
    };
    iteration(1);
    if (!whole) {
      steps.period(StepEvent::Type::period_begin, 10);
      iteration(10);
      steps.period(StepEvent::Type::period_end, 10);
    } else {
      for (int i = 0; i < 10; ++i) iteration(1);
    }
    iteration(1);
    steps.join(fetched);
  }
  EXPECT_NEAR(collapsed.priced().total_s, flat.priced().total_s, 1e-9);
  EXPECT_NEAR(collapsed.priced().exposed_s[1], flat.priced().exposed_s[1], 1e-9);
  EXPECT_NEAR(collapsed.priced().busy_s[1], flat.priced().busy_s[1], 1e-9);
}

TEST(Price, RatesMustBeAboveZero) {
  MachineRates rates = kRates;
  rates.exchange_bytes = 0;
  EXPECT_THAT([&] { price(CountedStep(), rates); },
              testing::ThrowsMessage<ConfigError>(testing::HasSubstr("exchange_bytes is 0")));
}

TEST(Price, FewUnitsRunBelowTheSustainedRate) {
  MachineRates rates = kRates;
  rates.gemm_units = {.short_flops = 200, .half = 10};  // sustained: 100
  const auto seconds = [&](double units) {
    CountedStep step;
    StepEvent event;
    event.kind = WorkKind::gemm;
    event.flops = 1000;
    event.units = units;
    event.seq = 1;
    step.events.push_back(event);
    return price(step, rates).total_s;
  };
  EXPECT_NEAR(seconds(2), 1000 / (200 * 2.0 / 12), 1e-9);
  EXPECT_NEAR(seconds(10), 10, 1e-9);
  EXPECT_NEAR(seconds(1000), 10, 1e-9);
  EXPECT_NEAR(seconds(0), 10, 1e-9);  // enough
}

}  // namespace
}  // namespace megatoken
