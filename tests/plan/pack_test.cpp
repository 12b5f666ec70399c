#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "plan/lifetimes.h"
#include "plan/plan.h"

namespace megatoken {
namespace {

SiteLifetimes site(std::string name, int64 bytes, std::vector<Interval> lifetimes, Place place = Place::device) {
  return {std::move(name), place, bytes, lifetimes, lifetimes};
}

CountedStep step_of(std::vector<SiteLifetimes> sites) {
  CountedStep step;
  step.sites = std::move(sites);
  for (const SiteLifetimes& s : step.sites)
    for (const Interval& i : s.lifetimes) step.end_time = std::max(step.end_time, i.end + 1);
  compute_peaks(step);
  return step;
}

// Random sites with one to three lifetimes; every event begins or ends one of them.
CountedStep random_step(unsigned seed, int count) {
  std::mt19937 random(seed);
  std::vector<SiteLifetimes> sites(static_cast<std::size_t>(count));
  std::vector<std::size_t> live, idle;
  for (std::size_t i = 0; i < sites.size(); ++i) {
    sites[i] = site("s" + std::to_string(i), static_cast<int64>(random() % 5000), {},
                    random() % 4 == 0 ? Place::host : Place::device);
    idle.push_back(i);
  }
  int64 time = 0;
  for (; time < count * 4 || !live.empty(); ++time) {
    const bool begin = time < count * 4 && !idle.empty() && (live.empty() || random() % 2 == 0);
    auto& from = begin ? idle : live;
    auto& to = begin ? live : idle;
    const std::size_t at = random() % from.size();
    const std::size_t s = from[at];
    from.erase(from.begin() + static_cast<std::ptrdiff_t>(at));
    to.push_back(s);
    if (begin)
      sites[s].lifetimes.push_back({time, -1});
    else
      sites[s].lifetimes.back().end = time;
  }
  for (auto& s : sites) s.uses = s.lifetimes;
  return step_of(std::move(sites));
}

bool meet(const SiteLifetimes& a, const SiteLifetimes& b) {
  for (const Interval& x : a.lifetimes)
    for (const Interval& y : b.lifetimes)
      if (x.begin < y.end && y.begin < x.end) return true;
  return false;
}

TEST(Pack, NothingAliveAtOnceOverlaps) {
  double total = 0;
  constexpr int kSeeds = 300;
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    const CountedStep step = random_step(seed, 4 + static_cast<int>(seed % 60));
    const Plan plan = pack(step);
    ASSERT_EQ(plan.sites().size(), step.sites.size());
    for (std::size_t a = 0; a < step.sites.size(); ++a) {
      const PlannedSite& pa = plan.sites()[a];
      EXPECT_EQ(pa.offset % kArenaAlignment, 0);
      EXPECT_EQ(pa.bytes, step.sites[a].bytes);
      EXPECT_LE(pa.offset + pa.bytes, plan.arena_bytes(pa.place));
      for (std::size_t b = 0; b < a; ++b) {
        const PlannedSite& pb = plan.sites()[b];
        if (pa.place != pb.place || !meet(step.sites[a], step.sites[b])) continue;
        EXPECT_TRUE(pa.offset + pa.bytes <= pb.offset || pb.offset + pb.bytes <= pa.offset)
            << seed << " " << a << " " << b;
      }
    }
    for (const Place place : {Place::device, Place::host}) EXPECT_GE(plan.arena_bytes(place), step.live_bytes(place));
    EXPECT_EQ(plan.misfit(step), std::nullopt);
    total += static_cast<double>(plan.arena_bytes(Place::device)) / static_cast<double>(step.live_bytes(Place::device));
  }
  EXPECT_LT(total / kSeeds, 1.1);  // lifetimes without any structure; a real step packs to within 1.2 %
}

TEST(Pack, SimultaneousSitesAreThoseWhoseLifetimesMeet) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const CountedStep step = random_step(seed, 20);
    const auto neighbours = simultaneous_sites(step);
    for (std::size_t a = 0; a < step.sites.size(); ++a)
      for (std::size_t b = 0; b < step.sites.size(); ++b) {
        const bool expected = a != b && step.sites[a].place == step.sites[b].place && step.sites[a].bytes > 0 &&
                              step.sites[b].bytes > 0 && meet(step.sites[a], step.sites[b]);
        EXPECT_EQ(std::count(neighbours[a].begin(), neighbours[a].end(), static_cast<std::int32_t>(b)) > 0, expected);
      }
  }
}

TEST(Pack, IsDeterministic) {
  const CountedStep step = random_step(5, 60);
  const Plan a = pack(step), b = pack(step);
  for (std::size_t i = 0; i < a.sites().size(); ++i) EXPECT_EQ(a.sites()[i].offset, b.sites()[i].offset);
}

TEST(Pack, DisjointLifetimesShareBytes) {
  const Plan plan =
      pack(step_of({site("a", 1000, {{0, 2}, {6, 8}}), site("b", 1000, {{3, 5}}), site("c", 10, {{1, 7}})}));
  EXPECT_EQ(plan.arena_bytes(Place::device), 1024 + 256);
  EXPECT_EQ(plan.find("a", Place::device)->offset, plan.find("b", Place::device)->offset);
  EXPECT_EQ(plan.find("a", Place::host), nullptr);
}

TEST(Pack, NothingAtAll) {
  const Plan plan = pack(CountedStep());
  EXPECT_EQ(plan.arena_bytes(Place::device), 0);
  EXPECT_TRUE(plan.fits(CountedStep()));
}

TEST(Plan, SaysWhyAStepDoesNotFit) {
  const Plan plan = pack(step_of({site("a", 1000, {{0, 2}}), site("b", 1000, {{3, 5}})}));
  EXPECT_EQ(plan.misfit(step_of({site("b", 900, {{0, 1}}), site("a", 1000, {{2, 3}})})), std::nullopt);
  EXPECT_EQ(*plan.misfit(step_of({site("c", 1, {{0, 1}})})), "buffer 'c' (device) is not in the plan");
  EXPECT_EQ(*plan.misfit(step_of({site("a", 1, {{0, 1}}, Place::host)})), "buffer 'a' (host) is not in the plan");
  EXPECT_EQ(*plan.misfit(step_of({site("a", 1001, {{0, 1}})})),
            "buffer 'a' (device) needs 1001 bytes, the plan has 1000");
  EXPECT_EQ(*plan.misfit(step_of({site("a", 10, {{0, 3}}), site("b", 10, {{2, 4}})})),
            "buffers 'a' and 'b' (device) live at once and share bytes in the plan");
}

TEST(Plan, AdaptReusesRepacksOrRefuses) {
  const Plan plan = pack(step_of({site("a", 1024, {{0, 2}}), site("b", 1024, {{3, 5}}), site("c", 512, {{1, 4}})}));
  const PlaceBytes capacity = plan.arena_bytes();
  const Plan same = adapt(plan, step_of({site("a", 512, {{0, 1}})}), capacity);
  EXPECT_EQ(same.sites().size(), 3u);
  const Plan repacked = adapt(plan, step_of({site("a", 512, {{0, 2}}), site("b", 512, {{1, 3}})}), capacity);
  EXPECT_EQ(repacked.sites().size(), 2u);
  EXPECT_EQ(repacked.arena_bytes(Place::device), 1024);
  EXPECT_THAT(
      [&] {
        adapt(plan, step_of({site("a", 512, {{0, 2}}), site("layer/big", 2048, {{1, 3}})}), capacity);
      },
      testing::ThrowsMessage<FitError>(testing::HasSubstr(
          "needs 2560 bytes of device memory and the arena has 1536; the largest buffer at the peak is 'layer/big'")));
  // The plan itself may be larger than the arena at hand.
  EXPECT_THROW(adapt(plan, step_of({site("a", 1024, {{0, 2}})}), {512, 0}), FitError);
}

TEST(Plan, OneArenaServesSeveralPrograms) {
  const Plan train = pack(step_of({site("a", 1024, {{0, 2}}), site("h", 256, {{1, 3}}, Place::host)}));
  const Plan update = pack(step_of({site("m", 4096, {{0, 2}})}));
  EXPECT_EQ(arena_for({&train, &update}), (PlaceBytes{4096, 256}));
}

TEST(Plan, RefusesNonsense) {
  EXPECT_THROW(Plan({{"a", Place::device, 100, 10}}, {}), InternalError);
  EXPECT_THROW(Plan({{"a", Place::device, 0, 10}, {"a", Place::device, 256, 10}}, {}), InternalError);
}

}  // namespace
}  // namespace megatoken
