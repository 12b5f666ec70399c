#include "data/dataset.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "base/error.h"
#include "data/batch.h"

namespace megatoken {
namespace {

using Ids = std::vector<std::int32_t>;
constexpr std::int32_t kNone = kNoLabel;

Ids targets_of(const PreparedDataset& dataset, int64 row) {
  Ids out(static_cast<std::size_t>(dataset.length(row)));
  dataset.copy_targets(row, out);
  return out;
}

Ids labels_of(const PreparedDataset& dataset, int64 row) {
  Ids out;
  for (int64 i = 0; i < dataset.length(row); ++i) out.push_back(dataset.label(row, i));
  return out;
}

// Every way that labels are stored gives back the labels and the shifted targets.
TEST(Dataset, LabelsComeBackHoweverStored) {
  const std::vector<std::pair<Ids, Ids>> rows{
      {{1, 2, 3}, {1, 2, 3}},
      {{1, 2, 3}, {kNone, kNone, 3}},
      {{1, 2, 3}, {kNone, kNone, kNone}},
      {{1, 2, 3}, {1, kNone, 3}},
      {{1, 2, 3}, {7, 8, 9}},
      {{1, 2, 3}, {kNone, 8, kNone}},
      {{5}, {5}},
      {{}, {}},
  };
  PreparedDataset dataset;
  int64 targets = 0;
  for (const auto& [ids, labels] : rows) dataset.add(ids, labels), targets += count_targets(labels);
  ASSERT_EQ(dataset.rows(), static_cast<int64>(rows.size()));
  EXPECT_EQ(dataset.targets(), targets);
  EXPECT_EQ(dataset.targets(), 2 + 1 + 0 + 1 + 2 + 1);
  EXPECT_EQ(dataset.tokens(), 19);
  EXPECT_EQ(dataset.longest(), 3);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto row = static_cast<int64>(r);
    const auto& [ids, labels] = rows[r];
    EXPECT_EQ(Ids(dataset.ids(row).begin(), dataset.ids(row).end()), ids);
    EXPECT_EQ(labels_of(dataset, row), labels);
    Ids expected;
    for (std::size_t i = 0; i < ids.size(); ++i) expected.push_back(i + 1 < ids.size() ? labels[i + 1] : kNone);
    EXPECT_EQ(targets_of(dataset, row), expected);
  }
}

TEST(Dataset, FirstLabelIsWhereTrainingBegins) {
  PreparedDataset dataset;
  for (const int64 first : {0, 1, 2, 4}) dataset.add(Ids{1, 2, 3, 4}, first);
  EXPECT_EQ(targets_of(dataset, 0), (Ids{2, 3, 4, kNone}));
  EXPECT_EQ(targets_of(dataset, 1), (Ids{2, 3, 4, kNone}));
  EXPECT_EQ(targets_of(dataset, 2), (Ids{kNone, 3, 4, kNone}));
  EXPECT_EQ(targets_of(dataset, 3), (Ids{kNone, kNone, kNone, kNone}));
  EXPECT_EQ(dataset.targets(), 3 + 3 + 2 + 0);
}

TEST(Dataset, LongAndShortRowsKeepTheirPlaces) {
  PreparedDataset dataset;
  std::vector<Ids> rows;
  for (int r = 0; r < 300; ++r) {
    Ids ids(static_cast<std::size_t>(r % 7 == 3 ? 200'000 : 100 + r));
    std::iota(ids.begin(), ids.end(), r);
    Ids labels = ids;
    for (std::size_t i = 0; i < labels.size(); i += static_cast<std::size_t>(1 + r % 3)) labels[i] = kNone;
    rows.push_back(ids);
    dataset.add(ids, labels);
  }
  for (int r = 0; r < 300; ++r) {
    const auto ids = dataset.ids(r);
    ASSERT_TRUE(std::equal(ids.begin(), ids.end(), rows[static_cast<std::size_t>(r)].begin())) << r;
    for (int64 i = 0; i < 50; ++i)
      ASSERT_EQ(dataset.label(r, i), i % (1 + r % 3) == 0 ? kNone : r + i) << r << " " << i;
  }
}

TEST(Dataset, FingerprintTellsContentApart) {
  const auto print = [](const Ids& ids, const Ids& labels) {
    PreparedDataset dataset;
    dataset.add(ids, labels);
    return dataset.fingerprint();
  };
  EXPECT_EQ(print({1, 2}, {1, 2}), print({1, 2}, {1, 2}));
  EXPECT_NE(print({1, 2}, {1, 2}), print({1, 3}, {1, 3}));
  EXPECT_NE(print({1, 2}, {1, 2}), print({1, 2}, {kNone, 2}));
  EXPECT_NE(print({1, 2, 3}, {1, kNone, 3}), print({1, 2, 3}, {1, kNone, 4}));
  PreparedDataset one, two;
  one.add(Ids{1, 2}), one.add(Ids{3});
  two.add(Ids{1}), two.add(Ids{2, 3});
  EXPECT_NE(one.fingerprint(), two.fingerprint());
}

TEST(Dataset, RefusesWhatCannotBe) {
  PreparedDataset dataset;
  EXPECT_THROW(dataset.add(Ids{1, 2}, Ids{1}), InternalError);
  dataset.add(Ids{1, 2});
  EXPECT_THROW(dataset.ids(1), InternalError);
  EXPECT_THROW(dataset.label(0, 2), InternalError);
}

TEST(Batch, FlattensDocumentsAndShiftsWithinEach) {
  PreparedDataset dataset;
  dataset.add(Ids{1, 2, 3});
  dataset.add(Ids{4});
  dataset.add(Ids{5, 6, 7}, Ids{kNone, 6, kNone});
  MicroBatch batch;
  fill_micro_batch(dataset, std::vector<int64>{2, 0, 1, 2}, batch);
  EXPECT_EQ(batch.ids, (Ids{5, 6, 7, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(batch.targets, (Ids{6, kNone, kNone, 2, 3, kNone, kNone, 6, kNone, kNone}));
  EXPECT_EQ(batch.target_count, 4);
  EXPECT_EQ(batch.lengths(), (std::vector<int64>{3, 3, 1, 3}));
  ASSERT_EQ(batch.documents.size(), 4u);
  EXPECT_EQ(batch.documents[1].row, 0);
  EXPECT_EQ(batch.documents[1].start, 3);
  EXPECT_EQ(batch.documents[3].start, 7);

  fill_micro_batch(dataset, std::vector<int64>{1}, batch);
  EXPECT_EQ(batch.ids, (Ids{4}));
  EXPECT_EQ(batch.target_count, 0);
  fill_micro_batch(dataset, {}, batch);
  EXPECT_EQ(batch.tokens(), 0);
  EXPECT_TRUE(batch.documents.empty());
}

}  // namespace
}  // namespace megatoken
