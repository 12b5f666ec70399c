// Counting, packing, checking and pricing a step of real size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/price.h"
#include "step/checking_context.h"
#include "step/counting_context.h"
#include "step/decoder_program.h"
#include "step/random_program.h"

namespace megatoken {
namespace {

using testing_step::DecoderProgram;
using testing_step::DecoderShape;
using testing_step::RandomProgram;

constexpr MachineRates kRates{.gemm_flops = 661e12,
                              .attention_forward_flops = 605e12,
                              .attention_backward_flops = 537e12,
                              .memory_bytes = 4e12,
                              .h2d_bytes = 54e9,
                              .d2h_bytes = 55e9,
                              .duplex_bytes = 92e9,
                              .exchange_bytes = 300e9};

CountedStep count(const DecoderShape& shape, bool collapse) {
  return count_step([&](StepContext& ctx) { DecoderProgram(shape).run(ctx); }, collapse);
}

TEST(DecoderPlan, CountsPacksAndChecks) {
  const DecoderShape shape;
  const CountedStep collapsed = count(shape, true);
  const Plan plan = pack(collapsed);
  const CountedStep flat = count(shape, false);
  EXPECT_NO_THROW(check_step(plan, [&](StepContext& ctx) { DecoderProgram(shape).run(ctx); }));
  EXPECT_LT(collapsed.end_time * 20, flat.end_time);
  const WorkTotals once = total_work(collapsed), all = total_work(flat);
  for (std::size_t k = 0; k < kNumWorkKinds; ++k) {
    EXPECT_EQ(once.by_kind[k].flops, all.by_kind[k].flops);
    EXPECT_EQ(once.by_kind[k].bytes, all.by_kind[k].bytes);
    EXPECT_EQ(once.by_kind[k].ops, all.by_kind[k].ops);
  }
  EXPECT_EQ(plan.misfit(flat), std::nullopt);
}

TEST(DecoderPlan, CollapsedPriceEqualsFlatWhateverBoundsIt) {
  const DecoderShape shape;
  const CountedStep collapsed = count(shape, true);
  const CountedStep flat = count(shape, false);
  const double unbounded = price(flat, kRates).total_s;
  for (const double slow : {1.0, 20.0, 200.0, 2000.0}) {
    for (const int part : {0, 1, 2, 3}) {
      SCOPED_TRACE(fmt::format("part {} slower by {}", part, slow));
      MachineRates rates = kRates;
      if (part == 0) rates.h2d_bytes /= slow;
      if (part == 1) rates.d2h_bytes /= slow;
      if (part == 2) rates.exchange_bytes /= slow;
      if (part == 3) rates.gemm_flops /= slow;
      const StepPrice one = price(collapsed, rates);
      const StepPrice all = price(flat, rates);
      EXPECT_NEAR(one.total_s, all.total_s, 0.005 * all.total_s);
      EXPECT_NEAR(one.exposed_total_s(), all.exposed_total_s(), 0.005 * all.total_s);
      for (std::size_t s = 0; s < kNumStreams; ++s) EXPECT_NEAR(one.busy_s[s], all.busy_s[s], 0.005 * all.total_s);
      EXPECT_GE(all.total_s, unbounded * 0.999);
      for (std::size_t s = 0; s < kNumStreams; ++s) EXPECT_GE(all.total_s * 1.000001, all.busy_s[s]);
    }
  }
}

TEST(DecoderPlan, PackingIsNearTheBound) {
  double worst = 0;
  for (const int64 groups : {1, 2, 4, 8})
    for (const int64 blocks : {1, 8})
      for (const int64 tiles : {1, 8, 64})
        for (const int64 tokens : {8192, 131072}) {
          const Plan plan = pack(count({.tokens = tokens, .groups = groups, .blocks = blocks, .tiles = tiles}, true));
          for (const Place place : {Place::device, Place::host})
            worst = std::max(
                worst, static_cast<double>(plan.arena_bytes(place)) / static_cast<double>(plan.live_bound(place)));
        }
  EXPECT_LE(worst, 1.012);
  RecordProperty("worst_over_bound", fmt::format("{:.4f}", worst));
}

TEST(DecoderPlan, ASmallerBatchRunsFromTheLargestPlan) {
  const Plan plan = pack(count({}, true));
  const CountedStep smaller = count({.tokens = 40000, .keys = 320000, .tiles = 10}, true);
  EXPECT_EQ(plan.misfit(smaller), std::nullopt);
  const Plan adapted = adapt(plan, smaller, plan.arena_bytes());
  for (const PlannedSite& site : adapted.sites()) EXPECT_EQ(site.offset, plan.find(site.name, site.place)->offset);
  const CountedStep larger = count({.tokens = 262144}, true);
  EXPECT_THAT(
      [&] { adapt(plan, larger, plan.arena_bytes()); },
      testing::ThrowsMessage<FitError>(testing::AllOf(testing::HasSubstr("the largest buffer at the peak is '"))));
}

TEST(Price, PartsAddUpAndCollapsedIsCloseToFlat) {
  double worst = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    RandomProgram program(seed);
    const auto step = [&](StepContext& ctx) { program.run(ctx, nullptr, nullptr); };
    MachineRates rates = kRates;
    rates.memory_bytes = 1;  // ops of these programs are all priced by bytes
    rates.op_overhead_s = 10;
    const StepPrice collapsed = price(count_step(step), rates);
    const StepPrice flat = price(count_step(step, false), rates);
    for (const StepPrice& p : {collapsed, flat}) {
      double parts = p.exposed_total_s();
      for (const double s : p.compute_s) parts += s;
      EXPECT_NEAR(parts, p.total_s, 1e-9 * p.total_s);
      double reasons = 0;
      for (const auto& [reason, s] : p.exposed_by_reason) reasons += s;
      EXPECT_NEAR(reasons, p.exposed_total_s(), 1e-9 * p.total_s);
    }
    if (flat.total_s > 0) worst = std::max(worst, std::abs(collapsed.total_s - flat.total_s) / flat.total_s);
  }
  EXPECT_LT(worst, 0.05);
  RecordProperty("worst", fmt::format("{:.4f}", worst));
}

}  // namespace
}  // namespace megatoken
