#include "data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "io/temp_dir.h"

namespace megatoken {
namespace {

using ::testing::HasSubstr;
using Rows = std::vector<int64>;

Rows take(Sampler& sampler, int64 steps) {
  Rows rows;
  for (int64 i = 0; i < steps; ++i)
    for (const int64 row : sampler.next().rows) rows.push_back(row);
  return rows;
}

TEST(Sampler, AnEpochIsAPermutationAndEachIsAnother) {
  Sampler sampler({.rows = 1000, .batch = 7});
  std::vector<Rows> epochs;
  for (int e = 0; e < 3; ++e) {
    epochs.push_back(take(sampler, sampler.steps_per_epoch()));
    EXPECT_EQ(std::set<int64>(epochs[e].begin(), epochs[e].end()).size(), 1000u);
    EXPECT_EQ(epochs[e].size(), 1000u);
    EXPECT_FALSE(std::is_sorted(epochs[e].begin(), epochs[e].end()));
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  Sampler other({.rows = 1000, .seed = 43});
  EXPECT_NE(take(other, 1000), epochs[0]);
}

// A checkpoint resumed by a later version must find its order again.
TEST(Sampler, TheOrderIsFixedForGood) {
  Sampler sampler({.rows = 8, .seed = 42});
  EXPECT_EQ(take(sampler, 8), (Rows{1, 4, 5, 7, 0, 2, 6, 3}));
  EXPECT_EQ(take(sampler, 8), (Rows{5, 2, 1, 6, 0, 3, 4, 7}));
}

TEST(Sampler, PlacesAreEvenlyShuffled) {
  std::vector<int> first(5);
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    Sampler sampler({.rows = 5, .seed = seed});
    ++first[static_cast<std::size_t>(sampler.next().rows[0])];
  }
  for (const int count : first) EXPECT_NEAR(count, 1000, 150);
}

TEST(Sampler, SequentialKeepsTheOrder) {
  Sampler sampler({.rows = 5, .order = RowOrder::sequential, .batch = 2});
  EXPECT_EQ(take(sampler, 6), (Rows{0, 1, 2, 3, 4, 0, 1, 2, 3, 4}));
  Sampler shuffled({.rows = 50, .order = RowOrder::sequential, .shuffle_dataset = true, .batch = 50});
  const Rows once = take(shuffled, 1);
  EXPECT_FALSE(std::is_sorted(once.begin(), once.end()));
  EXPECT_EQ(take(shuffled, 1), once);
}

// The rows of every optimizer step, whatever way batch x accumulation x dp makes 8.
TEST(Sampler, AStepHasTheSameRowsHoweverShared) {
  for (const RowOrder order : {RowOrder::random, RowOrder::sequential}) {
    Sampler whole({.rows = 37, .order = order, .batch = 8});
    std::vector<Rows> expected;
    for (int i = 0; i < 12; ++i) expected.push_back(whole.next().rows);
    EXPECT_EQ(expected[4].size(), 5u);  // 37 = 4 x 8 + 5: the short window isn't dropped
    for (const auto& [batch, accumulation, dp] :
         std::vector<std::array<int64, 3>>{{1, 8, 1}, {1, 4, 2}, {2, 2, 2}, {4, 1, 2}, {1, 1, 8}, {2, 4, 1}}) {
      Sampler shared({.rows = 37, .order = order, .batch = batch, .accumulation = accumulation, .dp = dp});
      EXPECT_EQ(shared.steps_per_epoch(), 5);
      for (const Rows& rows : expected) {
        const StepRows step = shared.next();
        EXPECT_EQ(step.rows, rows);
        // Micro-steps and ranks take every row once, in order.
        Rows taken;
        for (int64 a = 0; a < step.micro_steps(); ++a)
          for (int64 d = 0; d < dp; ++d) {
            const auto part = step.micro_batch(a, d);
            EXPECT_LE(static_cast<int64>(part.size()), batch);
            taken.insert(taken.end(), part.begin(), part.end());
          }
        EXPECT_EQ(taken, rows);
        EXPECT_LE(step.micro_steps(), accumulation);
      }
    }
  }
}

TEST(Sampler, AShortWindowLeavesSomeRanksEmpty) {
  Sampler sampler({.rows = 3, .order = RowOrder::sequential, .batch = 1, .accumulation = 2, .dp = 2});
  const StepRows step = sampler.next();
  EXPECT_EQ(step.micro_steps(), 2);
  EXPECT_EQ(step.micro_batch(1, 0).size(), 1u);
  EXPECT_TRUE(step.micro_batch(1, 1).empty());
  EXPECT_TRUE(step.micro_batch(5, 1).empty());
  EXPECT_THROW(step.micro_batch(0, 2), InternalError);
}

// Stopped after any number of steps, through several epoch borders, the rest is what it would have been.
TEST(Sampler, ResumesExactlyAnywhere) {
  for (const RowOrder order : {RowOrder::random, RowOrder::sequential}) {
    const SamplerOptions options{
        .rows = 10, .order = order, .shuffle_dataset = true, .seed = 3, .batch = 2, .accumulation = 2};
    Sampler unbroken(options);
    std::vector<Rows> all;
    std::vector<double> epochs;
    for (int i = 0; i < 12; ++i) {
      all.push_back(unbroken.next().rows);
      epochs.push_back(unbroken.epoch());
    }
    for (int stop = 0; stop < 12; ++stop) {
      Sampler first(options);
      take(first, stop);
      const nlohmann::json state = nlohmann::json::parse(first.state().dump());
      Sampler second(options);
      second.restore(state, "state.json");
      for (int i = stop; i < 12; ++i) {
        ASSERT_EQ(second.next().rows, all[i]) << "stopped after " << stop << " step " << i;
        ASSERT_EQ(second.epoch(), epochs[i]);
      }
    }
  }
}

TEST(Sampler, CountsEpochsAsTransformersDoes) {
  Sampler sampler({.rows = 10, .batch = 1, .accumulation = 4});
  EXPECT_EQ(sampler.steps_per_epoch(), 3);
  EXPECT_EQ(sampler.total_steps(3), 9);
  EXPECT_EQ(sampler.total_steps(0.5), 2);
  EXPECT_EQ(sampler.epoch(), 0);
  sampler.next();
  EXPECT_EQ(sampler.epoch(), 0.4);
  sampler.next();
  EXPECT_EQ(sampler.epoch(), 0.8);
  sampler.next();
  EXPECT_EQ(sampler.epoch(), 1.0);
}

TEST(Sampler, RefusesToResumeOnOtherData) {
  const Sampler sampler({.rows = 10});
  const auto refusal = [&](const SamplerOptions& options) {
    return test::message_of<ConfigError>([&] { Sampler(options).restore(sampler.state(), "checkpoint-3/state.json"); });
  };
  EXPECT_EQ(refusal({.rows = 10, .batch = 5, .dp = 2}), "");
  EXPECT_THAT(refusal({.rows = 11}), HasSubstr("checkpoint-3/state.json"));
  EXPECT_THAT(refusal({.rows = 11}), HasSubstr("rows in the dataset: 10, this one has 11"));
  EXPECT_THAT(refusal({.rows = 10, .seed = 1}), HasSubstr("seed"));
  EXPECT_THAT(refusal({.rows = 10, .order = RowOrder::sequential}), HasSubstr("train_sampling_strategy"));
  EXPECT_THAT(refusal({.rows = 10, .shuffle_dataset = true}), HasSubstr("shuffle_dataset"));
  for (const auto& [key, value] : std::vector<std::pair<std::string, nlohmann::json>>{
           {"position", 10}, {"position", -1}, {"epoch", -1}, {"epoch", "x"}, {"seed", nullptr}}) {
    nlohmann::json bad = sampler.state();
    bad[key] = value;
    EXPECT_THROW(Sampler({.rows = 10}).restore(bad, "s"), FileError) << key;
    bad.erase(key);
    EXPECT_THROW(Sampler({.rows = 10}).restore(bad, "s"), FileError) << key;
  }
  EXPECT_THROW(Sampler({.rows = 10}).restore(nlohmann::json::array(), "s"), FileError);
}

}  // namespace
}  // namespace megatoken
