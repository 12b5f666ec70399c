// What the tests of invariants share: random documents of a vocabulary of 61, and what "equal" means.
#pragma once

#include <gtest/gtest.h>

#include <random>

#include "model/run_model.h"

namespace megatoken::test {

inline std::vector<std::int32_t> random_ids(int64 count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> ids;
  for (int64 i = 0; i < count; ++i) ids.push_back(static_cast<std::int32_t>(random() % 61));
  return ids;
}

inline Documents documents_of(const std::vector<int64>& lengths, unsigned seed = 100) {
  Documents documents;
  for (std::size_t d = 0; d < lengths.size(); ++d)
    documents.add(random_ids(lengths[d], seed + static_cast<unsigned>(d)));
  return documents;
}

inline void expect_equal(const Outcome& got, const Outcome& want, double tolerance = 1e-5) {
  EXPECT_EQ(got.targets, want.targets);
  EXPECT_EQ(got.correct, want.correct);
  EXPECT_LE(std::abs(got.loss_sum - want.loss_sum), tolerance * std::abs(want.loss_sum));
  EXPECT_LE(std::abs(got.entropy_sum - want.entropy_sum), tolerance * std::abs(want.entropy_sum));
  EXPECT_LE(std::abs(got.aux_loss - want.aux_loss), tolerance * std::abs(want.aux_loss));
  ASSERT_EQ(got.gradients.size(), want.gradients.size());
  for (const auto& [name, values] : want.gradients)
    EXPECT_LE(relative_difference(got.gradients.at(name), values), tolerance) << name;
}

}  // namespace megatoken::test
