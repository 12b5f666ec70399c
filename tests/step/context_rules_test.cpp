// The rules of docs/step_context.md that every context enforces, here on the counting one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "step/bookkeeping.h"
#include "step/counting_context.h"

namespace megatoken {
namespace {

constexpr Cost kCost{CostKind::memory, 1, 8};
const Kernel kNothing = [](Stream&) {};

void expect_refused(const std::function<void(StepContext&)>& step, const std::string& part) {
  try {
    count_step(step);
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(part));
    return;
  }
  ADD_FAILURE() << "not refused: " << part;
}

TEST(ContextRules, ScopeIsLifetime) {
  const CountedStep step = count_step([](StepContext& ctx) {
    Buffer a = ctx.buffer("a", 2, 64, DType::f32);
    ctx.op("one", kCost, {out(a)}, kNothing);
    {
      Buffer b = ctx.buffer("b", 1, 100, DType::u8);
      ctx.op("two", kCost, {in(a), out(b)}, kNothing);
    }
    Buffer c = ctx.buffer("c", 1, 300, DType::u8, Place::host);
    ctx.op("three", kCost, {in(a), out(c)}, kNothing);
  });
  ASSERT_EQ(step.sites.size(), 3u);
  EXPECT_EQ(step.sites[0].bytes, 512);
  EXPECT_EQ(step.sites[1].name, "b");
  EXPECT_EQ(step.live_bytes(Place::device), 512 + 256);
  EXPECT_EQ(step.live_bytes(Place::host), 512);
  EXPECT_LT(step.sites[1].lifetimes[0].end, step.sites[2].lifetimes[0].begin);
  EXPECT_EQ(total_work(step).by_name.at("one").ops, 1);
}

TEST(ContextRules, BytesAreHeldUntilTheJoin) {
  const CountedStep step = count_step([](StepContext& ctx) {
    Ticket copied;
    {
      Buffer a = ctx.buffer("a", 1, 256, DType::u8);
      ctx.op("make", kCost, {out(a)}, kNothing);
      copied = ctx.async(StreamId::d2h, "copy", kCost, {in(a)}, {}, kNothing);
    }
    Buffer b = ctx.buffer("b", 1, 256, DType::u8);
    ctx.op("fill", kCost, {out(b)}, kNothing);
    ctx.wait(copied, "a is copied");
    Buffer c = ctx.buffer("c", 1, 256, DType::u8);
    ctx.op("fill", kCost, {out(c)}, kNothing);
  });
  EXPECT_GT(step.sites[0].lifetimes[0].end, step.sites[1].lifetimes[0].begin);
  EXPECT_LT(step.sites[0].lifetimes[0].end, step.sites[2].lifetimes[0].begin);
}

TEST(ContextRules, SlackIsReported) {
  const CountedStep step = count_step([](StepContext& ctx) {
    Buffer a = ctx.buffer("a", 1, 256, DType::u8);
    ctx.op("make", kCost, {out(a)}, kNothing);
    ctx.op("use", kCost, {in(a)}, kNothing);
    Buffer b = ctx.buffer("b", 1, 1024, DType::u8);
    ctx.op("fill", kCost, {out(b)}, kNothing);
  });
  EXPECT_EQ(slack_bytes(step, Place::device), 256);
  const auto at_peak = sites_at_peak(step, Place::device);
  ASSERT_EQ(at_peak.size(), 2u);
  EXPECT_EQ(at_peak[1].name, "a");
  EXPECT_TRUE(at_peak[1].idle);
}

TEST(ContextRules, TwoLiveBuffersOfOneSite) {
  expect_refused(
      [](StepContext& ctx) {
        Buffer a = ctx.buffer("gate", 1, 8, DType::f32);
        a = ctx.buffer("gate", 1, 8, DType::f32);
      },
      "two live buffers of site 'gate'");
}

TEST(ContextRules, SiteUsedAgainBeforeTheJoin) {
  expect_refused(
      [](StepContext& ctx) {
        for ([[maybe_unused]] const int64 i : ctx.loop("layer", 2)) {
          Buffer a = ctx.buffer("a", 1, 8, DType::f32);
          ctx.op("make", kCost, {out(a)}, kNothing);
          ctx.async(StreamId::d2h, "save", kCost, {in(a)}, {}, kNothing);
        }
      },
      "site 'layer/a' is used again before compute has waited for 'save' on device-to-host");
}

TEST(ContextRules, EscapeFromALoop) {
  expect_refused(
      [](StepContext& ctx) {
        Buffer kept;
        for (const int64 i : ctx.loop("layer", 3))
          if (i == 1) kept = ctx.buffer("x", 1, 8, DType::f32);
      },
      "buffer 'layer/x' escapes its iteration of loop 'layer'");
}

TEST(ContextRules, UseAfterReset) {
  expect_refused(
      [](StepContext& ctx) {
        Buffer a = ctx.buffer("a", 1, 8, DType::f32);
        const View view = a;
        a.reset();
        Buffer b = ctx.buffer("b", 1, 8, DType::f32);
        ctx.op("use", kCost, {in(view), out(b)}, kNothing);
      },
      "op 'use' uses buffer 'a' after its end");
}

TEST(ContextRules, ViewLeavesItsBuffer) {
  expect_refused(
      [](StepContext& ctx) {
        Buffer a = ctx.buffer("a", 4, 8, DType::f32);
        View view = a;
        view.rows = 5;
        ctx.op("use", kCost, {out(view)}, kNothing);
      },
      "op 'use' uses 160 bytes at 0 of 'a', which has 128");
}

TEST(ContextRules, UndeclaredMemory) {
  expect_refused(
      [](StepContext& ctx) {
        float x = 0;
        ctx.op("use", kCost, {out(View(&x, DType::f32, 1, 1))}, kNothing);
      },
      "no live buffer");
}

TEST(ContextRules, HeldAtTheEnd) {
  CountingContext ctx;
  Buffer a = ctx.buffer("a", 1, 8, DType::f32);
  EXPECT_THROW(ctx.finish(), InternalError);
  a.reset();
  EXPECT_NO_THROW(ctx.finish());
}

TEST(ContextRules, LoopLeftByBreak) {
  expect_refused(
      [](StepContext& ctx) {
        for (const int64 i : ctx.loop("layer", 3))
          if (i == 1) break;
      },
      "loop 'layer' is left before its end");
}

TEST(ContextRules, ExternalNamedAgain) {
  expect_refused(
      [](StepContext& ctx) {
        ctx.external("weight", 2, 8, DType::f32, nullptr);
        ctx.external("weight", 2, 4, DType::f32, nullptr);
      },
      "external 'weight' is named again as other memory");
}

TEST(ContextRules, BadSizes) {
  expect_refused([](StepContext& ctx) { ctx.buffer("a", -1, 8, DType::f32); }, "buffer 'a' of 1 x -1 x 8");
  expect_refused([](StepContext& ctx) { ctx.buffer("a", int64{1} << 40, int64{1} << 40, DType::f32); }, "buffer 'a'");
  expect_refused([](StepContext& ctx) { ctx.buffer("a/b", 1, 8, DType::f32); }, "has no '/'");
  expect_refused([](StepContext& ctx) { ctx.wait({StreamId::h2d, 3}, "nothing"); }, "where 0 were issued");
}

TEST(ContextRules, RingSlotsAlternateAndWait) {
  std::vector<std::string> joined;
  const CountedStep step = count_step(
      [](StepContext& ctx) {
        Ring ring = ctx.ring("x", 2, 4, 8, DType::f32);
        Buffer next = ring.acquire();
        Ticket ready = ctx.async(StreamId::h2d, "fetch", kCost, {out(next)}, {}, kNothing);
        for (const int64 i : ctx.loop("layer", 6)) {
          Buffer x = std::move(next);
          const Ticket mine = ready;
          if (i + 1 < 6) {
            next = ring.acquire();
            ready = ctx.async(StreamId::h2d, "fetch", kCost, {out(next)}, {}, kNothing);
          }
          ctx.wait(mine, "x");
          ctx.op("layer", kCost, {in(x)}, kNothing);
          ctx.async(StreamId::d2h, "save", kCost, {in(x)}, {}, kNothing);
        }
      },
      false);
  ASSERT_EQ(step.sites.size(), 2u);
  EXPECT_EQ(step.sites[0].name, "x[0]");
  EXPECT_EQ(step.sites[0].lifetimes.size(), 3u);
  for (const StepEvent& event : step.events)
    if (event.type == StepEvent::Type::join) joined.push_back(step.names[static_cast<std::size_t>(event.name)]);
  EXPECT_EQ(std::count(joined.begin(), joined.end(), "x"), 6 + 4);
}

TEST(ContextRules, RingAskedForOneTooMany) {
  expect_refused(
      [](StepContext& ctx) {
        Ring ring = ctx.ring("x", 2, 4, 8, DType::f32);
        Buffer a = ring.acquire();
        Buffer b = ring.acquire();
        Buffer c = ring.acquire();
      },
      "ring 'x' is asked for one more than its 2 slots");
}

TEST(ContextRules, PeriodThatIsNoMultipleOfARing) {
  expect_refused(
      [](StepContext& ctx) {
        Ring ring = ctx.ring("x", 3, 4, 8, DType::f32);
        for ([[maybe_unused]] const int64 i : ctx.loop("layer", 20)) {
          Buffer a = ring.acquire();
          ctx.op("use", kCost, {out(a)}, kNothing);
        }
      },
      "ring 'x' of depth 3 is acquired 2 times in a period (2) of loop 'layer'");
}

TEST(ContextRules, LoopsVisitTheSameSetBothWays) {
  for (const int64 n : {0, 1, 3, 7, 8, 9, 12, 13, 64, 65}) {
    for (const int64 period : {1, 2, 3}) {
      std::vector<std::vector<int64>> visits(2);
      for (const bool reverse : {false, true}) {
        const CountedStep step = count_step([&](StepContext& ctx) {
          for (const int64 i : ctx.loop("layer", n, {.reverse = reverse, .period = period})) {
            visits[reverse].push_back(i);
            ctx.op("op", kCost, {}, kNothing);
          }
        });
        if (n > 0) {
          EXPECT_EQ(total_work(step).by_name.at("op").ops, n);
        }
      }
      std::reverse(visits[1].begin(), visits[1].end());
      EXPECT_EQ(visits[0], visits[1]) << n << " " << period;
    }
  }
}

TEST(ContextRules, AnEmptyViewIsNoAccess) {
  count_step([](StepContext& ctx) {
    Buffer a = ctx.buffer("a", 0, 8, DType::f32);
    ctx.op("use", kCost, {in(View()), out(a)}, kNothing);
  });
}

}  // namespace
}  // namespace megatoken
