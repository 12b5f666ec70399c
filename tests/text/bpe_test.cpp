#include "text/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/error.h"
#include "text/text_cases.h"

namespace megatoken {
namespace {

using nlohmann::json;

// The definition: the lowest rank, of those the leftmost, until none is left.
std::vector<std::int32_t> merged(std::vector<std::int32_t> ids,
                                 const std::map<std::pair<int, int>, std::pair<std::uint32_t, int>>& merges) {
  for (;;) {
    std::size_t best = ids.size();
    std::uint32_t rank = MergeTable::kNoRank;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto at = merges.find({ids[i], ids[i + 1]});
      if (at != merges.end() && at->second.first < rank) {
        rank = at->second.first;
        best = i;
      }
    }
    if (best == ids.size()) return ids;
    ids[best] = merges.at({ids[best], ids[best + 1]}).second;
    ids.erase(ids.begin() + static_cast<long>(best) + 1);
  }
}

TEST(MergeTable, MergesByItsDefinition) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    const int letters = 2 + static_cast<int>(random() % 4);
    MergeTable table;
    std::map<std::pair<int, int>, std::pair<std::uint32_t, int>> merges;
    const std::uint32_t count = 1 + random() % 60;
    table.reserve(count);
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      const int known = letters + static_cast<int>(rank),
                left = static_cast<int>(random() % static_cast<unsigned>(known)),
                right = static_cast<int>(random() % static_cast<unsigned>(known));
      table.add(left, right, rank, known);
      merges[{left, right}] = {rank, known};  // the last one of a pair counts
    }
    MergeScratch scratch;
    for (int text = 0; text < 60; ++text) {
      std::vector<std::int32_t> ids(random() % 200);
      for (auto& id : ids) id = static_cast<std::int32_t>(random() % static_cast<unsigned>(letters));
      const auto want = merged(ids, merges);
      table.merge(ids, scratch);
      ASSERT_EQ(ids, want);
    }
  }
}

BpeModel model(const json& part, bool byte_level = false) {
  TokenizerFile file = parse_tokenizer_file(json{{"model", part}}.dump(), "here");
  return BpeModel(file, byte_level);
}

std::vector<std::int32_t> ids_of(const BpeModel& bpe, std::string_view piece) {
  BpeWorkspace work;
  IdBuffer ids(0);
  bpe.encode(piece, piece.size(), work, ids);
  bpe.encode(piece, piece.size(), work, ids);  // now perhaps out of the cache
  auto all = ids.take();
  const std::vector<std::int32_t> first(all.begin(), all.begin() + static_cast<long>(all.size() / 2));
  EXPECT_TRUE(std::equal(first.begin(), first.end(), all.begin() + static_cast<long>(all.size() / 2)));
  return first;
}

TEST(BpeModel, UnknownCharacters) {
  json part = json::parse(R"({"vocab": {"a": 0, "<unk>": 1, "<0xC3>": 2, "<0xA9>": 3}, "merges": []})");
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(ids_of(model(part), "axxa"), (Ids{0, 0}));  // dropped without an unk_token
  part["unk_token"] = "<unk>";
  EXPECT_EQ(ids_of(model(part), "axxa"), (Ids{0, 1, 1, 0}));
  part["fuse_unk"] = true;
  EXPECT_EQ(ids_of(model(part), "axxax"), (Ids{0, 1, 0, 1}));
  part["byte_fallback"] = true;
  EXPECT_EQ(ids_of(model(part), "a\u00e9"), (Ids{0, 2, 3}));
  EXPECT_EQ(ids_of(model(part), "a\u00e8"), (Ids{0, 1}));         // not all of its bytes have tokens
  EXPECT_EQ(ids_of(model(part), "x\u00e9a"), (Ids{2, 3, 1, 0}));  // the package writes bytes before an open unk
  part["unk_token"] = "[UNK]";
  EXPECT_THROW(ids_of(model(part), "x"), FileError);
}

TEST(BpeModel, WholeTokensGoFirstWithIgnoreMerges) {
  json part = json::parse(R"({"vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4, "abc": 5}, "merges": ["b c"]})");
  EXPECT_EQ(ids_of(model(part), "abc"), (std::vector<std::int32_t>{0, 4}));
  part["ignore_merges"] = true;
  EXPECT_EQ(ids_of(model(part), "abc"), (std::vector<std::int32_t>{5}));
  EXPECT_EQ(ids_of(model(part), "abcb"), (std::vector<std::int32_t>{0, 4, 1}));
  EXPECT_EQ(ids_of(model(part, true), "ab"), (std::vector<std::int32_t>{3}));
  // A long piece is cut where nothing merges; its parts are no pieces of their own.
  const std::string unit = "ab";
  const auto ids = ids_of(model(part), text_cases::times(unit, 40));
  EXPECT_EQ(ids.size(), 80u);
}

TEST(BpeModel, PrefixAndSuffix) {
  const json part =
      json::parse(R"({"vocab": {"a": 0, "##a": 1, "##b</w>": 2, "a</w>": 3, "a##": 4, "##ab</w>": 5, "aab</w>": 6},
      "merges": [["##a", "##b</w>"], ["a", "##ab</w>"]], "continuing_subword_prefix": "##", "end_of_word_suffix": "</w>"})");
  EXPECT_EQ(ids_of(model(part), "a"), (std::vector<std::int32_t>{3}));
  EXPECT_EQ(ids_of(model(part), "aab"), (std::vector<std::int32_t>{6}));
}

}  // namespace
}  // namespace megatoken
