// The checking context finds every planted fault, and nothing in right programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "step/bookkeeping.h"
#include "step/checking_context.h"
#include "step/counting_context.h"
#include "step/placement.h"
#include "step/random_program.h"
#include "step/strided_bytes.h"
#include "step/written_bytes.h"

namespace megatoken {
namespace {

using testing_step::RandomProgram;
constexpr Cost kCost{CostKind::memory, 1, 8};
const Kernel kNothing = [](Stream&) {};
using Step = std::function<void(StepContext&)>;

void expect_found(const Plan& plan, const Step& step, const std::string& part) {
  try {
    check_step(plan, step);
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(part));
    return;
  }
  ADD_FAILURE() << "not found: " << part;
}

// A decoder in small: weights fetched one layer ahead, x saved to the host and fetched back, gradients exchanged.
struct Faults {
  bool no_join_of_fetch = false;
  bool no_join_of_save = false;
  bool no_dependency = false;
  bool reads_too_much = false;
};
void toy_step(StepContext& ctx, const Faults& faults) {
  constexpr int64 kLayers = 6;
  const View weights = ctx.external("weights", kLayers, 64, DType::f32, nullptr, Place::host);
  const View gradients = ctx.external("gradients", kLayers, 64, DType::f32, nullptr, Place::host);
  Array saved = ctx.array("saved x", kLayers, 4, 64, DType::f32, Place::host);
  Buffer x = ctx.buffer("x", 4, 64, DType::f32);
  ctx.op("embed", kCost, {out(x)}, kNothing);
  Ticket last_save;
  for (const int64 i : ctx.loop("layer", kLayers)) {
    Buffer w = ctx.buffer("w", 1, 64, DType::f32);
    const Ticket fetched =
        ctx.async(StreamId::h2d, "fetch w", kCost, {in(weights.row_range(i, 1)), out(w)}, {}, kNothing);
    Buffer copy = ctx.buffer("copy", 4, 64, DType::f32);
    ctx.op("norm", kCost, {in(x), out(copy)}, kNothing);
    last_save = ctx.async(StreamId::d2h, "save x", kCost, {in(copy), out(saved.at(i))}, {}, kNothing);
    if (!faults.no_join_of_fetch) ctx.wait(fetched, "w");
    ctx.op("layer", kCost, {in(w), inout(x)}, kNothing);
    if (faults.no_join_of_fetch) ctx.wait(fetched, "w");
    ctx.wait(last_save, "x saved");
  }
  for (const int64 i : ctx.loop("backward", kLayers, {.reverse = true})) {
    Buffer back = ctx.buffer("x back", 4, 64, DType::f32);
    const Ticket fetched =
        ctx.async(StreamId::h2d, "fetch x", kCost, {in(saved.at(i)), out(back)}, {last_save}, kNothing);
    Buffer dw = ctx.buffer("dw", 1, 64, DType::f32);
    ctx.op(faults.reads_too_much ? "accumulate dw" : "dw", kCost, {in(x), faults.reads_too_much ? inout(dw) : out(dw)},
           kNothing);
    const Ticket reduced = ctx.async(StreamId::exchange, "reduce dw", kCost, {inout(dw)}, {}, kNothing);
    const Ticket stored = ctx.async(StreamId::d2h, "store dw", kCost, {in(dw), out(gradients.row_range(i, 1))},
                                    {faults.no_dependency ? Ticket{} : reduced}, kNothing);
    ctx.wait(fetched, "x back");
    ctx.op("dx", kCost, {in(back), inout(x)}, kNothing);
    if (!faults.no_join_of_save) ctx.wait(stored, "dw stored");
    if (faults.no_join_of_save) ctx.wait(reduced, "dw reduced");
  }
}
Step toy(const Faults& faults) {
  return [faults](StepContext& ctx) { toy_step(ctx, faults); };
}

TEST(Checking, ARightStepPasses) {
  const Plan plan = pack(count_step(toy({})));
  EXPECT_NO_THROW(check_step(plan, toy({})));
}

TEST(Checking, MissingJoin) {
  const Plan plan = pack(count_step(toy({})));
  expect_found(plan, toy({.no_join_of_fetch = true}),
               "race: 'layer' on compute reads 'layer/w' while 'fetch w' on host-to-device writes 'layer/w'");
  expect_found(plan, toy({.no_join_of_save = true}),
               "site 'backward/dw' is used again before compute has waited for 'store dw' on device-to-host");
}

TEST(Checking, UndeclaredDependency) {
  const Plan plan = pack(count_step(toy({})));
  expect_found(
      plan, toy({.no_dependency = true}),
      "race: 'store dw' on device-to-host reads 'backward/dw' while 'reduce dw' on exchange writes 'backward/dw'");
}

TEST(Checking, ReadOfUnwrittenBytes) {
  const Plan plan = pack(count_step(toy({})));
  expect_found(plan, toy({.reads_too_much = true}),
               "op 'accumulate dw' on compute reads bytes of 'backward/dw' that nothing has written");
}

// The plan of a packer that frees bytes when the scope ends instead of when compute has joined.
Plan packed_by_scope(const Step& step) {
  class ScopeCounting final : public StepContext {
   public:
    bool executing() const override { return false; }
    CountedStep counted;
    int64 time = 0;

   private:
    std::byte* begin_lifetime(LiveBuffer& b) override {
      end_scopes();
      const auto i = static_cast<std::size_t>(b.site->index);
      if (counted.sites.size() <= i) counted.sites.resize(i + 1);
      counted.sites[i].name = b.site->name;
      counted.sites[i].place = b.place;
      counted.sites[i].bytes = std::max(counted.sites[i].bytes, b.bytes);
      counted.sites[i].lifetimes.push_back({time, -1});
      counted.sites[i].uses.push_back({time, time});
      ++time;
      return book_->fake_addresses.next(*book_, b);
    }
    void end_scopes() {
      for (LiveBuffer* b : book_->lingering) end(*b);
    }
    void end(LiveBuffer& b) {
      Interval& i = counted.sites[static_cast<std::size_t>(b.site->index)].lifetimes.back();
      if (i.end < 0) i.end = time++;
    }
    void end_lifetime(LiveBuffer& b) override { end(b); }
    std::byte* begin_external(LiveBuffer& e, std::byte*) override {
      return book_->fake_addresses.next(*book_, e);
    }
    void perform(const Operation&, Kernel) override { end_scopes(); }
    void join(const Ticket&, std::string_view) override { end_scopes(); }
    void drain() override { counted.end_time = time + 1; }
  };
  ScopeCounting context;
  step(context);
  context.finish();
  context.counted.end_time = context.time;
  compute_peaks(context.counted);
  return pack(context.counted);
}

TEST(Checking, BytesFreedAtTheEndOfTheScope) {
  const Step step = [](StepContext& ctx) {
    Ticket saved;
    {
      Buffer x = ctx.buffer("x", 4, 64, DType::f32);
      ctx.op("make", kCost, {out(x)}, kNothing);
      saved = ctx.async(StreamId::d2h, "save x", kCost, {in(x)}, {}, kNothing);
    }
    Buffer y = ctx.buffer("y", 4, 64, DType::f32);
    ctx.op("fill", kCost, {out(y)}, kNothing);
    ctx.wait(saved, "x saved");
  };
  const Plan wrong = packed_by_scope(step);
  EXPECT_EQ(wrong.arena_bytes(Place::device), 1024);
  expect_found(wrong, step, "buffer 'y' is planned over bytes of 'x' (device), before compute has waited for 'save x'");
  const Plan right = pack(count_step(step));
  EXPECT_EQ(right.arena_bytes(Place::device), 2048);
  EXPECT_NO_THROW(check_step(right, step));
}

TEST(Checking, MissingRingWait) {
  class NoRingWaits final : public CheckingContext {
   public:
    explicit NoRingWaits(const Plan& plan) : CheckingContext(std::make_shared<Plan>(plan)) {
      book_->ring_waits = false;
    }
  };
  const Step step = [](StepContext& ctx) {
    Ring ring = ctx.ring("x", 2, 4, 64, DType::f32);
    for ([[maybe_unused]] const int64 i : ctx.loop("layer", 4)) {
      Buffer x = ring.acquire();
      ctx.op("make", kCost, {out(x)}, kNothing);
      ctx.async(StreamId::d2h, "save x", kCost, {in(x)}, {}, kNothing);
    }
  };
  const Plan plan = pack(count_step(step));
  EXPECT_NO_THROW(check_step(plan, step));
  NoRingWaits context(plan);
  EXPECT_THAT([&] { step(context); },
              testing::ThrowsMessage<InternalError>(testing::HasSubstr(
                  "site 'x[0]' is used again before compute has waited for 'save x' on device-to-host")));
}

TEST(Checking, RefusedByEveryContextToo) {
  const Step two = [](StepContext& ctx) {
    Buffer a = ctx.buffer("a", 1, 64, DType::f32);
    Buffer b = ctx.buffer("a", 1, 64, DType::f32);
  };
  const Step one = [](StepContext& ctx) { ctx.buffer("a", 1, 64, DType::f32); };
  const Plan plan = pack(count_step(one));
  expect_found(plan, two, "two live buffers of site 'a'");
  expect_found(
      plan, [](StepContext& ctx) { ctx.buffer("b", 1, 64, DType::f32); }, "buffer 'b' (device) is not in the plan");
  expect_found(
      plan, [](StepContext& ctx) { ctx.buffer("a", 1, 65, DType::f32); },
      "buffer 'a' (device) needs 260 bytes, the plan has 256");
  expect_found(
      plan,
      [](StepContext& ctx) {
        Buffer a = ctx.buffer("a", 1, 64, DType::f32);
        const View stale = a;
        a.reset();
        a = ctx.buffer("a", 1, 64, DType::f32);
        ctx.op("use", kCost, {out(stale)}, kNothing);
      },
      "op 'use' uses buffer 'a' after its end");
  expect_found(
      pack(count_step([](StepContext& ctx) {
        for ([[maybe_unused]] const int64 i : ctx.loop("layer", 2)) ctx.buffer("a", 1, 64, DType::f32);
      })),
      [](StepContext& ctx) {
        Buffer kept;
        for (const int64 i : ctx.loop("layer", 2))
          if (i == 0) kept = ctx.buffer("a", 1, 64, DType::f32);
      },
      "buffer 'layer/a' escapes its iteration");
}

TEST(Checking, DisjointColumnsAndRowsDoNotCollide) {
  const Step step = [](StepContext& ctx) {
    Buffer x = ctx.buffer("x", 16, 64, DType::f32);
    const View v = x;
    ctx.async(StreamId::h2d, "left", kCost, {out(v.col_range(0, 16))}, {}, kNothing);
    ctx.async(StreamId::exchange, "middle", kCost, {out(v.col_range(16, 16))}, {}, kNothing);
    ctx.op("right", kCost, {out(v.col_range(32, 32))}, kNothing);
    ctx.op("use", kCost, {in(v.col_range(40, 3))}, kNothing);
  };
  EXPECT_NO_THROW(check_step(pack(count_step(step)), step));
  const Step overlapping = [](StepContext& ctx) {
    Buffer x = ctx.buffer("x", 16, 64, DType::f32);
    const View v = x;
    ctx.async(StreamId::h2d, "left", kCost, {out(v.col_range(0, 17))}, {}, kNothing);
    ctx.async(StreamId::exchange, "middle", kCost, {out(v.col_range(16, 16))}, {}, kNothing);
  };
  expect_found(pack(count_step(overlapping)), overlapping, "race: 'middle' on exchange writes 'x' while 'left'");
}

std::set<int64> bytes_of(const StridedBytes& s) {
  std::set<int64> bytes;
  for (int64 r = 0; r < s.rows; ++r)
    for (int64 c = 0; c < s.width; ++c) bytes.insert(s.begin + r * s.stride + c);
  return bytes;
}
StridedBytes random_bytes(std::mt19937& random, int64 reach) {
  StridedBytes s;
  s.rows = 1 + static_cast<int64>(random() % 5);
  s.width = 1 + static_cast<int64>(random() % 6);
  s.stride = s.width + static_cast<int64>(random() % 5);
  if (random() % 2 == 0) s.stride = std::max<int64>(s.width, 8);
  s.begin = static_cast<int64>(random() % static_cast<unsigned>(reach));
  return s;
}

TEST(StridedBytes, IntersectIsExact) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    const StridedBytes a = random_bytes(random, 40);
    const StridedBytes b = random_bytes(random, 40);
    const std::set<int64> in_a = bytes_of(a);
    bool expected = false;
    for (const int64 x : bytes_of(b)) expected |= in_a.count(x) > 0;
    ASSERT_EQ(intersect(a, b), expected) << i;
    ASSERT_EQ(intersect(b, a), expected) << i;
  }
}

TEST(WrittenBytes, CoverageIsExact) {
  std::mt19937 random(2);
  int covered = 0;
  for (int i = 0; i < 4000; ++i) {
    WrittenBytes written(1 + static_cast<int64>(random() % 12));
    std::set<int64> bytes;
    for (int w = static_cast<int>(random() % 12); w >= 0; --w) {
      const StridedBytes s = random_bytes(random, 30);
      written.write(s);
      bytes.merge(bytes_of(s));
    }
    for (int q = 0; q < 10; ++q) {
      const StridedBytes s = random_bytes(random, 30);
      const auto asked = bytes_of(s);
      const bool expected = std::includes(bytes.begin(), bytes.end(), asked.begin(), asked.end());
      covered += expected;
      ASSERT_EQ(written.covers(s), expected) << i;
    }
  }
  EXPECT_GT(covered, 1000);
}

TEST(WrittenBytes, TilesStayFew) {
  WrittenBytes written(4096);
  for (int64 tile = 0; tile < 1000; ++tile) written.write({tile * 4096 * 512, 1024, 4096, 512});
  EXPECT_TRUE(written.covers({0, 1024, 4096, 512000}));
  EXPECT_FALSE(written.covers({0, 1025, 4096, 512000}));
  written.write({1024, 3072, 4096, 512000});
  EXPECT_TRUE(written.covers({0, 4096 * 512000, 4096 * 512000, 1}));
}

// Every access as a plain set of bytes, every pair compared: what the checker must agree with.
class NaiveChecker final : public StepContext {
 public:
  explicit NaiveChecker(const Plan& plan) : placement_(*book_, std::make_shared<Plan>(plan)) {}
  bool executing() const override { return false; }
  bool raced = false;

 private:
  struct Done {
    StreamId stream;
    int64 seq;
    std::set<int64> reads, writes;
  };
  std::byte* begin_lifetime(LiveBuffer& b) override {
    placement_.begin(b);
    return book_->fake_addresses.next(*book_, b);
  }
  void end_lifetime(LiveBuffer& b) override { placement_.end(b); }
  std::byte* begin_external(LiveBuffer& e, std::byte*) override {
    return book_->fake_addresses.next(*book_, e);
  }
  void perform(const Operation& op, Kernel) override {
    Done now{op.stream, op.seq, {}, {}};
    for (const BufferAccess& a : *op.accesses) {
      const int64 base = a.buffer->site == nullptr ? (int64{1} << 40) + a.buffer->id * 1000000
                                                   : a.buffer->offset + (a.buffer->place == Place::host ? 1 << 30 : 0);
      for (int64 r = 0; r < a.view.rows; ++r)
        for (int64 c = 0; c < a.view.cols; ++c) {
          const int64 at = base + a.offset() + (r * a.view.row_stride + c) * 8;
          if (a.mode != AccessMode::in) now.writes.insert(at);
          if (a.mode != AccessMode::out) now.reads.insert(at);
        }
    }
    const auto meet = [](const std::set<int64>& a, const std::set<int64>& b) {
      return std::any_of(a.begin(), a.end(), [&](int64 x) { return b.count(x) > 0; });
    };
    for (const Done& before : done_)
      if (op.clock[index_of(before.stream)] < before.seq &&
          (meet(before.writes, now.writes) || meet(before.writes, now.reads) || meet(before.reads, now.writes)))
        raced = true;
    done_.push_back(std::move(now));
  }
  void join(const Ticket&, std::string_view) override {}
  void drain() override {}
  void forget() override { placement_.clear(); }

  Placement placement_;
  std::vector<Done> done_;
};

// Nothing here has a second thread.
#ifdef __SANITIZE_THREAD__
constexpr unsigned kPrograms = 25;
#else
constexpr unsigned kPrograms = 120;
#endif

TEST(Checking, RandomProgramsAreClean) {
  for (unsigned seed = 0; seed < 3 * kPrograms; ++seed) {
    SCOPED_TRACE(seed);
    RandomProgram program(seed);
    const auto step = [&](StepContext& ctx) { program.run(ctx, nullptr, nullptr); };
    const Plan plan = pack(count_step(step));
    EXPECT_NO_THROW(check_step(plan, step));
  }
}

// With one wait or dependency left out, the checker says race exactly when the comparison of all pairs does, and
// nothing refused by both goes unseen.
TEST(Checking, DroppedWaitsAgreeWithAllPairs) {
  unsigned races = 0, refused = 0, harmless = 0;
  for (unsigned seed = 0; seed < kPrograms; ++seed) {
    SCOPED_TRACE(seed);
    RandomProgram program(seed);
    const Plan plan = pack(count_step([&](StepContext& ctx) { program.run(ctx, nullptr, nullptr); }));
    const int64 waits = program.waits();
    if (waits > 400) continue;
    for (int64 drop = 0; drop < waits; drop += 1 + waits / 12) {
      const auto faulty = [&](StepContext& ctx) { program.run(ctx, nullptr, nullptr, 1, drop); };
      NaiveChecker naive(plan);
      bool naive_refused = false;
      try {
        faulty(naive);
        naive.finish();
      } catch (const InternalError&) {
        naive_refused = true;
      }
      std::string found;
      try {
        check_step(plan, faulty);
      } catch (const InternalError& error) {
        found = error.what();
      }
      const bool race = found.find("race:") != std::string::npos;
      EXPECT_TRUE(!race || naive.raced) << found;
      EXPECT_EQ(found.empty(), !naive.raced && !naive_refused) << found;
      races += race;
      refused += !race && !found.empty();
      harmless += found.empty();
    }
  }
  EXPECT_GT(races, kPrograms / 3);
  EXPECT_GT(refused, kPrograms / 6);
  RecordProperty("races", static_cast<int>(races));
  RecordProperty("refused", static_cast<int>(refused));
  RecordProperty("harmless", static_cast<int>(harmless));
}

}  // namespace
}  // namespace megatoken
