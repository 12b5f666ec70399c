#include "data/prepare.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "io/temp_dir.h"

namespace megatoken {
namespace {

using test::message_of;
using test::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using Ids = std::vector<std::int32_t>;
constexpr std::int32_t kNone = kNoLabel;

// One id a byte; "</s>" is one token, 256; "ab" is one token, 257; a "<" at the start gets a BOS, 258, before it.
TextEncoder fake_encoder() {
  TextEncoder encoder;
  encoder.eos_token = "</s>";
  encoder.encode = [](std::string_view text, int, int64& invalid_utf8) {
    Ids ids;
    if (text.starts_with("<bos")) ids.push_back(258);
    while (!text.empty()) {
      if (text.starts_with("</s>")) {
        ids.push_back(256);
        text.remove_prefix(4);
      } else if (text.starts_with("ab")) {
        ids.push_back(257);
        text.remove_prefix(2);
      } else {
        invalid_utf8 += static_cast<unsigned char>(text[0]) == 0xFF;
        ids.push_back(static_cast<unsigned char>(text[0]));
        text.remove_prefix(1);
      }
    }
    return ids;
  };
  return encoder;
}

struct Prepare : ::testing::Test {
  TempDir dir;
  PrepareOptions options{.vocab_size = 259};
  PrepareCounts counts;
  TextEncoder encoder = fake_encoder();

  PreparedDataset prepare(const std::string& rows) {
    return prepare_dataset({.name = dir.write("t.jsonl", rows)}, encoder, options, counts);
  }
  template <typename ErrorType = FileError>
  std::string fault(const std::string& rows) {
    return message_of<ErrorType>([&] { prepare(rows); });
  }
  void limit(int64 max_length, LongRowRule rule = LongRowRule::truncate) {
    options.max_length = max_length;
    options.max_length_given = true;
    options.long_rows = rule;
  }
};

Ids ids_of(const PreparedDataset& dataset, int64 row) { return {dataset.ids(row).begin(), dataset.ids(row).end()}; }

Ids labels_of(const PreparedDataset& dataset, int64 row) {
  Ids labels;
  for (int64 i = 0; i < dataset.length(row); ++i) labels.push_back(dataset.label(row, i));
  return labels;
}

TEST_F(Prepare, TextGetsAnEndUnlessItHasOne) {
  const PreparedDataset dataset = prepare("{\"text\": \"xy\"}\n{\"text\": \"z</s>\"}\n{\"text\": \"</s>q\"}\n");
  EXPECT_EQ(ids_of(dataset, 0), (Ids{'x', 'y', 256}));
  EXPECT_EQ(ids_of(dataset, 1), (Ids{'z', 256}));
  EXPECT_EQ(ids_of(dataset, 2), (Ids{256, 'q', 256}));
  EXPECT_EQ(labels_of(dataset, 0), ids_of(dataset, 0));
  EXPECT_EQ(counts.rows_read, 3);
  EXPECT_EQ(counts.tokens_read, 8);
  EXPECT_FALSE(counts.anything_lost());
  encoder.eos_token = "";
  EXPECT_EQ(ids_of(prepare("{\"text\": \"xy\"}"), 0), (Ids{'x', 'y'}));
}

TEST_F(Prepare, CompletionsAloneAreTrained) {
  const std::string rows = "{\"prompt\": \"pq\", \"completion\": \"cd\"}\n{\"prompt\": \"\", \"completion\": \"e\"}\n";
  PreparedDataset dataset = prepare(rows);
  EXPECT_EQ(ids_of(dataset, 0), (Ids{'p', 'q', 'c', 'd', 256}));
  EXPECT_EQ(labels_of(dataset, 0), (Ids{kNone, kNone, 'c', 'd', 256}));
  EXPECT_EQ(labels_of(dataset, 1), (Ids{'e', 256}));
  EXPECT_EQ(counts.prompt_mismatches, 0);
  options.completion_only_loss = false;
  dataset = prepare(rows);
  EXPECT_EQ(labels_of(dataset, 0), (Ids{'p', 'q', 'c', 'd', 256}));
}

// A token that spans the border belongs to the completion.
TEST_F(Prepare, ABorderInsideATokenIsCounted) {
  const PreparedDataset dataset = prepare("{\"prompt\": \"xa\", \"completion\": \"bc\"}");
  EXPECT_EQ(ids_of(dataset, 0), (Ids{'x', 257, 'c', 256}));
  EXPECT_EQ(labels_of(dataset, 0), (Ids{kNone, 257, 'c', 256}));
  EXPECT_EQ(counts.prompt_mismatches, 1);
}

TEST_F(Prepare, IdsAreTakenAsTheyAre) {
  const PreparedDataset dataset =
      prepare("{\"input_ids\": [1, 2, 3]}\n{\"input_ids\": [4, 5], \"labels\": [-100, 7]}\n{\"text\": \"t\"}");
  EXPECT_EQ(labels_of(dataset, 0), (Ids{1, 2, 3}));
  EXPECT_EQ(labels_of(dataset, 1), (Ids{kNone, 7}));
  EXPECT_EQ(ids_of(dataset, 2), (Ids{'t', 256}));
}

TEST_F(Prepare, CompletionOnlyLossNeedsCompletions) {
  options.completion_only_loss = true;
  EXPECT_THAT(fault("{\"prompt\": \"p\", \"completion\": \"c\"}\n{\"text\": \"t\"}"),
              AllOf(HasSubstr("t.jsonl:2"), HasSubstr("completion_only_loss")));
  EXPECT_THAT(fault("{\"input_ids\": [1, 2]}"), HasSubstr("completion_only_loss"));
  EXPECT_EQ(fault("{\"input_ids\": [1, 2], \"labels\": [-100, 2]}"), "");
}

TEST_F(Prepare, TruncationKeepsTheStartAndCounts) {
  limit(3);
  const PreparedDataset dataset = prepare(
      "{\"text\": \"wxyz\"}\n{\"text\": \"wx\"}\n{\"input_ids\": [1, 2, 3, 4], \"labels\": [-100, -100, 3, 4]}\n");
  ASSERT_EQ(dataset.rows(), 3);
  EXPECT_EQ(ids_of(dataset, 0), (Ids{'w', 'x', 'y'}));
  EXPECT_EQ(ids_of(dataset, 1), (Ids{'w', 'x', 256}));
  EXPECT_EQ(labels_of(dataset, 2), (Ids{kNone, kNone, 3}));
  EXPECT_EQ(counts.truncated_rows, 2);
  EXPECT_EQ(counts.dropped_tokens, 2 + 1);
  EXPECT_EQ(counts.dropped_rows, 0);
  EXPECT_TRUE(counts.anything_lost());
}

TEST_F(Prepare, RowsWithoutATargetAreDroppedAndCounted) {
  limit(3);
  const PreparedDataset dataset = prepare(
      "{\"text\": \"\"}\n"                                         // only the end
      "{\"input_ids\": []}\n{\"input_ids\": [5]}\n"                // nothing to predict
      "{\"input_ids\": [1, 2, 3], \"labels\": [1, -100, -100]}\n"  // the first label is never a target
      "{\"prompt\": \"pqrs\", \"completion\": \"c\"}\n"            // the completion is cut off
      "{\"text\": \"ok\"}\n");
  EXPECT_EQ(dataset.rows(), 1);
  EXPECT_EQ(counts.rows_read, 6);
  EXPECT_EQ(counts.dropped_rows, 5);
  EXPECT_EQ(counts.dropped_tokens, 1 + 0 + 1 + 3 + 6);
  EXPECT_EQ(counts.truncated_rows, 1);
  EXPECT_THAT(counts.reasons,
              UnorderedElementsAre(Pair("fewer than two tokens", 3), Pair("no labelled token", 1),
                                   Pair("no labelled token before max_length", 1), Pair("cut at max_length", 1)));
}

TEST_F(Prepare, SplitMakesConsecutiveWindows) {
  limit(3, LongRowRule::split);
  PreparedDataset dataset = prepare(
      "{\"text\": \"tuvwxy\"}\n{\"text\": \"tu\"}\n{\"prompt\": \"pqrs\", \"completion\": \"cd\"}\n"
      "{\"input_ids\": [1, 2, 3, 4, 5], \"labels\": [-100, 2, 3, -100, 9]}");
  ASSERT_EQ(dataset.rows(), 2 + 1 + 1 + 2);
  EXPECT_EQ(ids_of(dataset, 0), (Ids{'t', 'u', 'v'}));
  EXPECT_EQ(ids_of(dataset, 1), (Ids{'w', 'x', 'y'}));  // the end alone, a window of one token, is dropped
  EXPECT_EQ(ids_of(dataset, 2), (Ids{'t', 'u', 256}));
  EXPECT_EQ(ids_of(dataset, 3), (Ids{'s', 'c', 'd'}));  // the prompt's own window and the end's are dropped
  EXPECT_EQ(labels_of(dataset, 3), (Ids{kNone, 'c', 'd'}));
  EXPECT_EQ(labels_of(dataset, 4), (Ids{kNone, 2, 3}));
  EXPECT_EQ(labels_of(dataset, 5), (Ids{kNone, 9}));
  EXPECT_EQ(counts.split_rows, 3);
  EXPECT_EQ(counts.truncated_rows, 0);
  EXPECT_EQ(counts.dropped_rows, 1 + 1 + 1);
  EXPECT_EQ(counts.dropped_tokens, 1 + 3 + 1);
}

TEST_F(Prepare, ConcatenationJoinsTextsAndCutsThem) {
  limit(4, LongRowRule::concatenate);
  const PreparedDataset dataset = prepare(
      "{\"text\": \"uv\"}\n{\"text\": \"\"}\n{\"text\": \"w\"}\n{\"text\": \"klmnopqrst\"}\n{\"text\": \"xyz</s>\"}\n");
  ASSERT_EQ(dataset.rows(), 5);
  EXPECT_EQ(ids_of(dataset, 0), (Ids{'u', 'v', 256, 'w'}));
  EXPECT_EQ(ids_of(dataset, 1), (Ids{256, 'k', 'l', 'm'}));
  EXPECT_EQ(ids_of(dataset, 2), (Ids{'n', 'o', 'p', 'q'}));
  EXPECT_EQ(ids_of(dataset, 3), (Ids{'r', 's', 't', 256}));
  EXPECT_EQ(ids_of(dataset, 4), (Ids{'x', 'y', 'z', 256}));
  for (int64 row = 0; row < 5; ++row) EXPECT_EQ(labels_of(dataset, row), ids_of(dataset, row));
  EXPECT_EQ(counts.rows_read, 5);
  EXPECT_EQ(counts.joined_texts, 4);
  EXPECT_EQ(counts.joined_rows, 5);
  EXPECT_EQ(counts.split_rows, 2);  // "w" and "kl.."
  EXPECT_EQ(counts.truncated_rows, 0);
  EXPECT_THAT(counts.reasons, UnorderedElementsAre(Pair("empty", 1), Pair("continued in the next row", 2)));
  EXPECT_EQ(counts.dropped_tokens, 1);  // the empty text's end
  EXPECT_THAT(describe(counts), AllOf(HasSubstr("joined 4 texts into 5 rows"), HasSubstr("2 lie in several rows"),
                                      HasSubstr("dropped 1 rows and 1 tokens (empty: 1)")));
}

// Labels go with their tokens; a text's first token is predicted by the end of the one before it.
TEST_F(Prepare, ConcatenationKeepsLabels) {
  limit(5, LongRowRule::concatenate);
  const PreparedDataset dataset = prepare(
      "{\"prompt\": \"p\", \"completion\": \"c\"}\n{\"text\": \"t\"}\n"
      "{\"input_ids\": [1, 2, 3, 4], \"labels\": [9, -100, -100, -100]}\n{\"input_ids\": [7]}\n");
  ASSERT_EQ(dataset.rows(), 2);
  EXPECT_EQ(ids_of(dataset, 0), (Ids{'p', 'c', 256, 't', 256}));
  EXPECT_EQ(labels_of(dataset, 0), (Ids{kNone, 'c', 256, 't', 256}));
  EXPECT_EQ(labels_of(dataset, 1), (Ids{9, kNone, kNone, kNone, 7}));
  EXPECT_EQ(counts.joined_rows, 2);
  EXPECT_EQ(counts.dropped_rows, 0);
}

TEST_F(Prepare, ConcatenatedRowsWithoutATargetAreDropped) {
  limit(2, LongRowRule::concatenate);
  const PreparedDataset dataset =
      prepare("{\"input_ids\": [1, 2, 3, 4, 5], \"labels\": [1, -100, 3, 4, 5]}");  // the last row is one token
  ASSERT_EQ(dataset.rows(), 1);
  EXPECT_EQ(ids_of(dataset, 0), (Ids{3, 4}));
  EXPECT_EQ(counts.joined_rows, 3);
  EXPECT_EQ(counts.dropped_rows, 2);
  EXPECT_EQ(counts.dropped_tokens, 3);
  EXPECT_EQ(counts.reasons.at("fewer than two tokens"), 1);
  EXPECT_EQ(counts.reasons.at("no labelled token"), 1);
}

TEST_F(Prepare, ConcatenationIsTheStreamOfAllRowsCut) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    const int64 length = 2 + static_cast<int64>(random() % 40);
    limit(length, LongRowRule::concatenate);
    options.threads = 1 + static_cast<int>(random() % 3);
    Ids all_ids, all_labels;
    std::string rows;
    for (unsigned n = 1 + random() % 30; n > 0; --n) {
      Ids ids(random() % 60), labels;
      for (auto& id : ids) id = static_cast<std::int32_t>(random() % 259);
      for (const auto id : ids) labels.push_back(random() % 4 ? id : random() % 2 ? kNone : 3);
      rows += fmt::format("{{\"input_ids\": [{}], \"labels\": [{}]}}\n", fmt::join(ids, ","), fmt::join(labels, ","));
      all_ids.insert(all_ids.end(), ids.begin(), ids.end());
      all_labels.insert(all_labels.end(), labels.begin(), labels.end());
    }
    if (all_ids.size() < 2) continue;
    const PreparedDataset dataset = prepare(rows);
    int64 row = 0, dropped = 0;
    for (std::size_t at = 0; at < all_ids.size(); at += static_cast<std::size_t>(length)) {
      const std::size_t end = std::min(all_ids.size(), at + static_cast<std::size_t>(length));
      const Ids labels(all_labels.begin() + static_cast<long>(at), all_labels.begin() + static_cast<long>(end));
      if (count_targets(labels) == 0) {
        dropped += static_cast<int64>(end - at);
        continue;
      }
      ASSERT_LT(row, dataset.rows());
      EXPECT_EQ(ids_of(dataset, row),
                Ids(all_ids.begin() + static_cast<long>(at), all_ids.begin() + static_cast<long>(end)));
      EXPECT_EQ(labels_of(dataset, row), labels);
      ++row;
    }
    EXPECT_EQ(row, dataset.rows());
    EXPECT_EQ(counts.dropped_tokens, dropped);
    EXPECT_EQ(counts.tokens_read, static_cast<int64>(all_ids.size()));
  }
}

TEST_F(Prepare, ConcatenationNeedsALength) {
  options.long_rows = LongRowRule::concatenate;
  EXPECT_THAT(fault<ConfigError>("{\"text\": \"a\"}"), AllOf(HasSubstr("max_length"), HasSubstr("concatenate")));
  limit(8, LongRowRule::concatenate);
  options.max_length = std::nullopt;
  EXPECT_THAT(fault<ConfigError>("{\"text\": \"a\"}"), HasSubstr("max_length"));
}

TEST_F(Prepare, ADefaultLimitThatNobodyChoseIsNotSilent) {
  options.max_length = 4;
  options.max_length_given = false;
  for (const LongRowRule rule : {LongRowRule::truncate, LongRowRule::split}) {
    options.long_rows = rule;
    EXPECT_EQ(fault<ConfigError>("{\"text\": \"abc\"}"), "");
    EXPECT_THAT(fault<ConfigError>("{\"text\": \"x\"}\n{\"text\": \"vwxyz\"}"),
                AllOf(HasSubstr("max_length"), HasSubstr("t.jsonl:2 has 6 tokens"), HasSubstr("default of 4")));
  }
  options.max_length = std::nullopt;
  EXPECT_EQ(fault<ConfigError>("{\"text\": \"vwxyz\"}"), "");
}

TEST_F(Prepare, NamesIdsThatTheModelLacks) {
  options.vocab_size = 200;
  EXPECT_THAT(fault("{\"input_ids\": [1, 2]}\n{\"input_ids\": [1, 200]}"),
              AllOf(HasSubstr("t.jsonl:2"), HasSubstr("200"), HasSubstr("vocabulary of 200")));
  EXPECT_THAT(fault("{\"input_ids\": [1, 2], \"labels\": [-100, 300]}"), HasSubstr("label 300"));
  EXPECT_THAT(fault("{\"text\": \"x\"}"), AllOf(HasSubstr("256"), HasSubstr("tokenizer")));
}

TEST_F(Prepare, NothingLeftIsAnError) {
  EXPECT_THAT(fault(""), HasSubstr("t.jsonl: no rows"));
  EXPECT_THAT(fault("{\"text\": \"\"}\n{\"input_ids\": [1, 2], \"labels\": [-100, -100]}"),
              AllOf(HasSubstr("t.jsonl: nothing is left"), HasSubstr("2 rows"), HasSubstr("fewer than two tokens: 1"),
                    HasSubstr("no labelled token: 1")));
  limit(1);
  EXPECT_THAT(fault("{\"text\": \"xyz\"}"), HasSubstr("max_length"));
}

TEST_F(Prepare, InvalidUtf8IsCounted) {
  dir.write("t.txt", "a\xFFz\xFF");
  const PreparedDataset dataset = prepare_dataset({.name = dir.file("t.txt")}, encoder, options, counts);
  EXPECT_EQ(dataset.rows(), 1);
  EXPECT_EQ(counts.invalid_utf8, 2);
}

TEST_F(Prepare, ThreadsDontChangeTheResult) {
  std::string rows;
  for (int i = 0; i < 5000; ++i) rows += "{\"text\": \"" + std::string(static_cast<std::size_t>(i % 50), 'x') + "\"}\n";
  const PreparedDataset one = prepare(rows);
  const PrepareCounts counted = counts;
  options.threads = 3;
  const PreparedDataset three = prepare(rows);
  EXPECT_EQ(one.fingerprint(), three.fingerprint());
  EXPECT_EQ(counts.reasons, counted.reasons);
  EXPECT_EQ(counts.tokens_read, counted.tokens_read);
}

// Rows are parsed by several threads, in groups: the fault of the first row is the one that is named, once.
TEST_F(Prepare, TheFirstFaultIsNamed) {
  const std::string good = "{\"text\": \"a\"}\n";
  for (const int threads : {1, 3}) {
    options.threads = threads;
    EXPECT_THAT(fault(good + "{\"text\": 1}\n" + good + "{\"text\": 2}\n{\"te"),
                AllOf(::testing::EndsWith("t.jsonl:2: \"text\" must be a text, not a number"),
                      ::testing::Not(HasSubstr("t.jsonl:2: /"))));
    EXPECT_THAT(fault("[\n{\"text\": \"a\"},\n{\"text\": 1},\n{\"text\": \"b\""),
                HasSubstr("t.jsonl:3: \"text\" must be"));
    EXPECT_THAT(fault("[\n{\"text\": \"a\"},\n{\"text\": \"b\""), HasSubstr("no end"));
  }
}

TEST_F(Prepare, AnEncodersErrorNamesTheRow) {
  encoder.encode = [](std::string_view text, int, int64&) -> Ids {
    if (text.starts_with('!')) throw FileError("no way to write it");
    return {1, 2};
  };
  options.threads = 2;
  EXPECT_THAT(fault("{\"text\": \"a\"}\n{\"text\": \"!\"}\n{\"text\": \"!\"}"),
              HasSubstr("t.jsonl:2: no way to write it"));
}

}  // namespace
}  // namespace megatoken
