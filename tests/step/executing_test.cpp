// Execution on the CPU device: order, errors, plans, timelines.
#include "step/executing_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "step/counting_context.h"
#include "step/random_program.h"

namespace megatoken {
namespace {

constexpr Cost kCost{CostKind::memory, 1, 8};
using Step = std::function<void(StepContext&)>;

struct Executed {
  explicit Executed(const Step& step, bool poison = true)
      : device(create_cpu_device(1)),
        plan(std::make_shared<Plan>(pack(count_step(step)))),
        arena(*device, plan->arena_bytes(), nullptr, {.poison = poison}),
        context(*device, arena, plan) {}
  void run(const Step& step) {
    step(context);
    context.finish();
  }
  std::unique_ptr<Device> device;
  std::shared_ptr<Plan> plan;
  Arena arena;
  ExecutingContext context;
};

// y = x doubled, over host, exchange and device buffers; fails in the op named.
Step doubling(float* x, float* y, const std::string& failing = "") {
  return [=](StepContext& ctx) {
    const auto kernel = [failing](const std::string& name, View from, View to, float factor) -> Kernel {
      return [=](Stream&) {
        if (name == failing) throw FileError("{} fails", name);
        for (int64 i = 0; i < 64; ++i) to.as<float>()[i] = factor * from.as<const float>()[i];
      };
    };
    const View source = ctx.external("x", 1, 64, DType::f32, x, Place::host);
    const View target = ctx.external("y", 1, 64, DType::f32, y, Place::host);
    Ring ring = ctx.ring("slot", 2, 1, 64, DType::f32);
    for (const int64 i : ctx.loop("layer", 4)) {
      Buffer a = ring.acquire();
      const Ticket fetched =
          ctx.async(StreamId::h2d, "fetch", kCost, {in(source), out(a)}, {}, kernel("fetch", source, a, 1));
      ctx.wait(fetched, "x");
      Buffer b = ctx.buffer("b", 1, 64, DType::f32);
      ctx.op("double", kCost, {in(a), out(b)}, kernel("double", a, b, 2));
      const Ticket exchanged =
          ctx.async(StreamId::exchange, "exchange", kCost, {in(b), out(a)}, {}, kernel("exchange", b, a, 1));
      const Ticket stored =
          ctx.async(StreamId::d2h, "store", kCost, {in(a), out(target)}, {exchanged}, kernel("store", a, target, 1));
      if (i == 3) ctx.wait(stored, "y");
      ctx.wait(exchanged, "exchanged");
    }
  };
}

std::vector<float> numbers() {
  std::vector<float> values(64);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) + 1;
  return values;
}

TEST(Executing, RunsAStep) {
  std::vector<float> x = numbers(), y(64, 0);
  const Step step = doubling(x.data(), y.data());
  Executed executed(step);
  executed.run(step);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(y[i], 2 * x[i]);
}

TEST(Executing, AfterAFailureOnAnyStreamTheNextStepIsRight) {
  for (const std::string failing : {"fetch", "double", "exchange", "store"}) {
    SCOPED_TRACE(failing);
    std::vector<float> x = numbers(), y(64, 0);
    const Step good = doubling(x.data(), y.data());
    Executed executed(good);
    executed.run(good);
    for (int again = 0; again < 3; ++again) {
      std::fill(y.begin(), y.end(), 0.0f);
      EXPECT_THAT([&] { executed.run(doubling(x.data(), y.data(), failing)); },
                  testing::ThrowsMessage<FileError>(failing + " fails"));
      EXPECT_EQ(y[5], 0);
      executed.run(good);
      for (std::size_t i = 0; i < 64; ++i) ASSERT_EQ(y[i], 2 * x[i]);
    }
  }
}

TEST(Executing, TheFirstErrorIsTheOneRethrownAndNoKernelRunsAfterIt) {
  std::atomic<int> ran = 0;
  const Step step = [&](StepContext& ctx) {
    Buffer a = ctx.buffer("a", 1, 8, DType::f32);
    const Ticket t =
        ctx.async(StreamId::exchange, "first", kCost, {out(a)}, {}, [](Stream&) { throw FileError("first"); });
    ctx.wait(t, "first");
    ctx.op("second", kCost, {in(a)}, [](Stream&) { throw FileError("second"); });
    const Ticket u = ctx.async(StreamId::d2h, "third", kCost, {in(a)}, {}, [&](Stream&) { ++ran; });
    ctx.wait(u, "third");
  };
  Executed executed(step);
  EXPECT_THAT([&] { executed.run(step); }, testing::ThrowsMessage<FileError>("first"));
  EXPECT_EQ(ran, 0);
}

TEST(Executing, AnExceptionOfTheProgramIsAbandoned) {
  std::vector<float> x = numbers(), y(64, 0);
  const Step good = doubling(x.data(), y.data());
  Executed executed(good);
  const Step broken = [&](StepContext& ctx) {
    const View source = ctx.external("x", 1, 64, DType::f32, x.data(), Place::host);
    for (const int64 i : ctx.loop("layer", 4)) {
      Buffer b = ctx.buffer("b", 1, 64, DType::f32);
      ctx.async(StreamId::h2d, "slow", kCost, {in(source), out(b)}, {}, [view = b.view()](Stream&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        view.as<float>()[0] = -1;
      });
      if (i == 0) throw ConfigError("the program gives up");
    }
  };
  for (int again = 0; again < 3; ++again) {
    EXPECT_THROW(broken(executed.context), ConfigError);
    executed.context.abandon();
    executed.run(good);
    for (std::size_t i = 0; i < 64; ++i) ASSERT_EQ(y[i], 2 * x[i]);
  }
}

TEST(Executing, APlanThatDoesNotHoldTheStepIsRefused) {
  std::vector<float> x = numbers(), y(64, 0);
  Executed executed(doubling(x.data(), y.data()));
  EXPECT_THAT([&] { executed.context.buffer("other", 1, 8, DType::f32); },
              testing::ThrowsMessage<InternalError>(testing::HasSubstr("buffer 'other' (device) is not in the plan")));
  EXPECT_THAT(
      [&] {
        for ([[maybe_unused]] const int64 i : executed.context.loop("layer", 4))
          executed.context.buffer("b", 2, 64, DType::f32);
      },
      testing::ThrowsMessage<InternalError>(
          testing::HasSubstr("buffer 'layer/b' (device) needs 512 bytes, the plan has 256")));
  executed.context.abandon();
  const auto larger =
      std::make_shared<Plan>(pack(count_step([](StepContext& ctx) { ctx.buffer("large", 1, 1 << 20, DType::f32); })));
  EXPECT_THROW(executed.context.use_plan(larger), FitError);
  EXPECT_THROW(ExecutingContext(*executed.device, executed.arena, larger), FitError);
  executed.run(doubling(x.data(), y.data()));
  EXPECT_EQ(y[9], 20);
}

TEST(Executing, OverlapWithALivingBufferIsRefusedWhateverThePlanSays) {
  const auto device = create_cpu_device(1);
  const auto plan = std::make_shared<Plan>(
      std::vector<PlannedSite>{{"a", Place::device, 0, 512}, {"b", Place::device, 256, 512}}, PlaceBytes{});
  Arena arena(*device, plan->arena_bytes());
  ExecutingContext context(*device, arena, plan);
  Buffer a = context.buffer("a", 1, 64, DType::f32);
  Buffer b = context.buffer("b", 1, 64, DType::f32);  // a's true size is within its first 256 bytes
  b.reset();
  a.reset();
  a = context.buffer("a", 1, 128, DType::f32);
  EXPECT_THAT([&] { b = context.buffer("b", 1, 64, DType::f32); },
              testing::ThrowsMessage<InternalError>(
                  testing::HasSubstr("'b' is planned over bytes of 'a' (device), which lives")));
  a.reset();
  context.finish();
}

TEST(Executing, ExternalsAreChecked) {
  const auto device = create_cpu_device(1);
  const auto plan = std::make_shared<Plan>();
  Arena arena(*device, plan->arena_bytes());
  ExecutingContext context(*device, arena, plan);
  std::vector<float> memory(64);
  context.external("weight", 1, 64, DType::f32, memory.data());
  EXPECT_THROW(context.external("none", 1, 64, DType::f32, nullptr), InternalError);
  EXPECT_THAT([&] { context.external("head", 1, 8, DType::f32, memory.data() + 8); },
              testing::ThrowsMessage<InternalError>(
                  testing::HasSubstr("'weight' and 'head' are the same memory under two names")));
  context.external("empty", 0, 64, DType::f32, nullptr);
  context.finish();
}

TEST(Executing, FreedBytesArePoisoned) {
  float seen = 0;
  const Step step = [&](StepContext& ctx) {
    {
      Buffer a = ctx.buffer("a", 1, 64, DType::f32);
      ctx.op("fill", kCost, {out(a)}, [v = a.view()](Stream&) { std::fill_n(v.as<float>(), 64, 1.0f); });
    }
    Buffer b = ctx.buffer("b", 1, 64, DType::f32);
    ctx.op("look", kCost, {out(b)}, [v = b.view(), &seen](Stream&) { seen = v.as<float>()[3]; });
  };
  Executed executed(step);
  executed.run(step);
  EXPECT_TRUE(seen != seen);
  Executed plain(step, false);
  plain.run(step);
  EXPECT_EQ(seen, 1);
}

TEST(Executing, ATimelineHasEveryOpOnItsStream) {
  std::vector<float> x = numbers(), y(64, 0);
  const Step step = doubling(x.data(), y.data());
  Executed executed(step);
  executed.context.record_timeline(true);
  for (int again = 0; again < 2; ++again) {
    executed.run(step);
    std::map<std::string, int> seen;
    for (const TimelineEntry& entry : executed.context.timeline().entries) {
      EXPECT_LE(entry.begin_ns, entry.end_ns);
      EXPECT_GE(entry.begin_ns, 0);
      ++seen[fmt::format("{}: {}", name_of(entry.stream), entry.name)];
    }
    EXPECT_EQ(seen["host-to-device: fetch"], 4);
    EXPECT_EQ(seen["compute: double"], 4);
    EXPECT_EQ(seen["exchange: exchange"], 4);
    EXPECT_EQ(seen["device-to-host: store"], 4);
    EXPECT_EQ(seen["compute: wait: x"], 4);
    // A wait ends after what it waits for.
    const auto end_of_first = [&](std::string_view name) {
      for (const TimelineEntry& entry : executed.context.timeline().entries)
        if (entry.name == name) return entry.end_ns;
      return -1.0;
    };
    EXPECT_LE(end_of_first("fetch"), end_of_first("wait: x"));
    // Every lifetime of a buffer, four of b and of each slot's users, holds the ops that use it.
    const auto& buffers = executed.context.timeline().buffers;
    EXPECT_EQ(std::count_if(buffers.begin(), buffers.end(), [](const auto& b) { return b.name == "layer/b"; }), 4);
    for (const TimelineBuffer& buffer : buffers) {
      EXPECT_EQ(buffer.bytes, 256);
      EXPECT_LT(buffer.begin_ns, buffer.end_ns) << buffer.name;
    }
  }
  executed.context.record_timeline(false);
  executed.run(step);
  EXPECT_TRUE(executed.context.timeline().entries.empty());
}

TEST(Executing, AsynchronousWorkRunsBesideCompute) {
  // The copy can end only while compute's kernel runs: in one order on one thread this would never end.
  std::atomic<bool> copying = false;
  bool beside = false;
  const Step step = [&](StepContext& ctx) {
    Buffer a = ctx.buffer("a", 1, 8, DType::f32);
    Buffer b = ctx.buffer("b", 1, 8, DType::f32);
    const Ticket t = ctx.async(StreamId::h2d, "copy", kCost, {out(a)}, {}, [&](Stream&) { copying = true; });
    ctx.op("compute", kCost, {out(b)}, [&](Stream&) {
      for (int i = 0; i < 10000 && !copying; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      beside = copying;
    });
    ctx.wait(t, "a");
  };
  Executed executed(step);
  executed.run(step);
  EXPECT_TRUE(beside);
}

}  // namespace
}  // namespace megatoken
