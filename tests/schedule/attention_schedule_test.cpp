#include "schedule/attention_schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace megatoken {
namespace {

struct Case {
  std::vector<int64> lengths;
  int64 cp;
  int64 kv_block;
  KvExchange exchange;
};

// Every (document, query position, key position <= query position) is computed exactly once, nothing else is, and the
// first block of every query row is marked first and no later one.
void expect_exact_cover(const Case& c) {
  const TokenLayout layout(c.lengths, c.cp);
  std::set<std::pair<int64, int64>> tokens;  // (document, position) held by some rank
  for (int64 rank = 0; rank < c.cp; ++rank) {
    const auto schedule = make_attention_schedule(layout, rank, c.kv_block, c.exchange);
    const auto token_of_row = [&](int64 holder, int64 row) {
      for (const Segment& s : layout.segments(holder))
        if (row >= s.row && row < s.row + s.length) return std::make_pair(s.document, s.first_position + row - s.row);
      return std::make_pair(int64{-1}, int64{-1});
    };
    const auto token_of_gathered = [&](int64 row) {
      for (int64 holder = 0; holder < c.cp; ++holder)
        for (const Segment& s : layout.segments(holder))
          if (row >= s.gathered_row && row < s.gathered_row + s.length)
            return std::make_pair(s.document, s.first_position + row - s.gathered_row);
      return std::make_pair(int64{-1}, int64{-1});
    };
    std::map<int64, std::set<int64>> seen;  // query row -> key positions
    std::set<int64> begun;
    double pairs = 0;
    for (const auto& phase : schedule.phases)
      for (const auto& b : phase.blocks) {
        if (c.kv_block > 0) {
          ASSERT_LE(b.key_count, c.kv_block);
        }
        if (b.causal) {
          ASSERT_EQ(b.key_count, b.query_count);
        }
        for (int64 q = 0; q < b.query_count; ++q) {
          const int64 row = b.query_begin + q;
          ASSERT_EQ(b.first, !begun.contains(row));
          const auto query = token_of_row(rank, row);
          ASSERT_GE(query.first, 0);
          const int64 visible = b.causal ? q + 1 : b.key_count;
          for (int64 k = 0; k < visible; ++k) {
            const auto key = phase.source >= 0 ? token_of_row(phase.source, b.key_begin + k)
                                               : token_of_gathered(b.key_begin + k);
            ASSERT_EQ(key.first, query.first);
            ASSERT_LE(key.second, query.second);
            ASSERT_TRUE(seen[row].insert(key.second).second) << "computed twice";
            ++pairs;
          }
        }
        for (int64 q = 0; q < b.query_count; ++q) begun.insert(b.query_begin + q);
      }
    ASSERT_EQ(pairs, schedule.pairs);
    int64 rows = 0;
    for (const Segment& s : layout.segments(rank))
      for (int64 i = 0; i < s.length; ++i, ++rows) {
        ASSERT_EQ(static_cast<int64>(seen[s.row + i].size()), s.first_position + i + 1);
        ASSERT_TRUE(tokens.insert({s.document, s.first_position + i}).second);
      }
    for (const auto& range : schedule.padding) rows += range.count;
    ASSERT_EQ(rows, layout.rows());
  }
  int64 total = 0;
  for (int64 length : c.lengths) total += length;
  ASSERT_EQ(static_cast<int64>(tokens.size()), total);
}

TEST(AttentionSchedule, CoversExactlyTheCausalPairs) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    Case c{{}, 1 + static_cast<int64>(random() % 5), static_cast<int64>(random() % 3 == 0 ? 0 : 1 + random() % 9),
           random() % 2 ? KvExchange::ring : KvExchange::allgather};
    const auto documents = 1 + random() % 4;
    for (std::size_t d = 0; d < documents; ++d) c.lengths.push_back(static_cast<int64>(random() % (random() % 4 ? 30 : 3)));
    SCOPED_TRACE(testing::PrintToString(c.lengths) + " cp " + std::to_string(c.cp) + " kv_block " +
                 std::to_string(c.kv_block) + (c.exchange == KvExchange::ring ? " ring" : " allgather"));
    expect_exact_cover(c);
    if (HasFatalFailure()) return;
  }
}

TEST(AttentionSchedule, OneRankIsOneBlockADocument) {
  const auto schedule = make_attention_schedule(TokenLayout({100, 7}, 1), 0, 0, KvExchange::allgather);
  ASSERT_EQ(schedule.phases.size(), 1u);
  ASSERT_EQ(schedule.phases[0].blocks.size(), 2u);
  EXPECT_TRUE(schedule.queries[0].single);
  EXPECT_TRUE(schedule.phases[0].blocks[0].causal);
  EXPECT_TRUE(schedule.padding.empty());
}

TEST(AttentionSchedule, LongDocumentNeedsAtMostThreeBlocksAHalf) {
  const TokenLayout layout({1 << 20}, 8);
  for (int64 rank = 0; rank < 8; ++rank) {
    const auto schedule = make_attention_schedule(layout, rank, 0, KvExchange::allgather);
    EXPECT_LE(schedule.phases[0].blocks.size(), 5u);  // at most two for the first half, three for the second
    const double even = (1048576.0 * 1048577.0 / 2) / 8;
    EXPECT_NEAR(schedule.pairs / even, 1.0, 1e-3);  // the work is balanced
  }
}

TEST(TokenLayout, ShapesAreEqualOnAllRanks) {
  const TokenLayout layout({1, 5, 0, 17}, 4);
  EXPECT_EQ(layout.gathered_rows(), 4 * layout.rows());
  for (int64 rank = 0; rank < 4; ++rank) {
    int64 held = 0;
    for (const Segment& s : layout.segments(rank)) held += s.length;
    EXPECT_LE(held, layout.rows());
  }
  // Gathered rows of different segments never meet.
  std::set<int64> rows;
  for (int64 rank = 0; rank < 4; ++rank)
    for (const Segment& s : layout.segments(rank))
      for (int64 i = 0; i < s.length; ++i) EXPECT_TRUE(rows.insert(s.gathered_row + i).second);
}

}  // namespace
}  // namespace megatoken
