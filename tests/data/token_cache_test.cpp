#include "data/token_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "base/error.h"
#include "io/temp_dir.h"

namespace megatoken {
namespace {

namespace fs = std::filesystem;
using test::TempDir;

struct TokenCache : ::testing::Test {
  TempDir dir;
  DatasetSpec spec;
  PrepareOptions options{.max_length = 3000, .max_length_given = true, .vocab_size = 256};
  TextEncoder encoder;
  std::atomic<int> encoded = 0;

  TokenCache() {
    encoder.identity = "fake";
    encoder.encode = [this](std::string_view text, int, int64&) {
      ++encoded;
      return std::vector<std::int32_t>(text.begin(), text.end());
    };
    // Rows of every form of labels, more than a MiB.
    std::string rows =
        "{\"input_ids\": [1, 2, 3], \"labels\": [1, -100, 3]}\n{\"input_ids\": [1, 2], \"labels\": [5, 6]}\n"
        "{\"prompt\": \"p\", \"completion\": \"cc\"}\n";
    for (int i = 0; i < 300; ++i)
      rows += "{\"text\": \"" + std::string(static_cast<std::size_t>(3900 + i), 'x') + "\"}\n";
    spec.name = dir.write("t.jsonl", rows);
  }

  PreparedDataset prepare(PrepareCounts& counts) {
    encoded = 0;
    return prepare_dataset_cached(spec, encoder, options, counts, dir.file("cache"));
  }
  std::vector<std::string> entries() {
    std::vector<std::string> paths;
    for (const auto& entry : fs::directory_iterator(dir.file("cache/datasets"))) paths.push_back(entry.path());
    return paths;
  }
};

TEST_F(TokenCache, GivesTheSameRowsWithoutTokenizing) {
  PrepareCounts first, second;
  const PreparedDataset made = prepare(first);
  EXPECT_GT(encoded, 0);
  ASSERT_EQ(entries().size(), 1u);
  const PreparedDataset cached = prepare(second);
  EXPECT_EQ(encoded, 0);
  EXPECT_EQ(made.fingerprint(), cached.fingerprint());
  EXPECT_EQ(made.targets(), cached.targets());
  EXPECT_EQ(counts_to_json(first), counts_to_json(second));
  EXPECT_EQ(second.truncated_rows, 300);
  EXPECT_EQ(cached.label(0, 1), kNoLabel);
  EXPECT_EQ(cached.label(1, 0), 5);
}

TEST_F(TokenCache, EveryChangeIsAnotherEntry) {
  PrepareCounts counts;
  prepare(counts);
  const auto fresh = [&](const char* what) {
    prepare(counts);
    EXPECT_GT(encoded, 0) << what;
  };
  options.max_length = 2999, fresh("max_length");
  options.max_length = std::nullopt, fresh("no max_length");
  options.long_rows = LongRowRule::split, fresh("long_rows");
  options.max_length = 3000, options.long_rows = LongRowRule::concatenate, fresh("concatenate");
  options.completion_only_loss = false, fresh("completion_only_loss");
  options.vocab_size = 300, fresh("vocabulary");
  encoder.identity = "other", fresh("tokenizer");
  encoder.eos_token = "e", fresh("eos_token");
  std::string content = TempDir::read(spec.name);
  content[content.size() - 10] = 'y';
  dir.write("t.jsonl", content), fresh("content");
  EXPECT_EQ(entries().size(), 10u);
}

TEST_F(TokenCache, DamageIsNoticedAndRepaired) {
  PrepareCounts counts;
  const std::uint64_t expected = prepare(counts).fingerprint();
  const std::string path = entries().at(0), good = TempDir::read(path);
  std::mt19937_64 random(3);
  for (int i = 0; i < 40; ++i) {
    std::string bad = good;
    // Headers, tables and ids each get their share.
    const std::size_t at = i % 3 == 0   ? random() % 700
                           : i % 3 == 1 ? bad.size() - 1 - random() % 4000
                                        : random() % bad.size();
    if (i % 5 == 4)
      bad.resize(at);
    else
      bad[at] = static_cast<char>(bad[at] ^ (1 << random() % 8));
    fs::remove(path);
    std::ofstream(path, std::ios::binary) << bad;
    EXPECT_EQ(prepare(counts).fingerprint(), expected);
    EXPECT_EQ(counts.rows_read, 303);
  }
  EXPECT_EQ(entries().size(), 1u);
}

TEST_F(TokenCache, SmallOrAnonymousThingsAreNotCached) {
  PrepareCounts counts;
  encoder.identity = "";
  prepare(counts);
  EXPECT_FALSE(fs::exists(dir.file("cache")));
  encoder.identity = "fake";
  spec.name = dir.write("small.jsonl", "{\"text\": \"abc\"}");
  prepare(counts);
  EXPECT_FALSE(fs::exists(dir.file("cache")));
  EXPECT_EQ(prepare_dataset_cached(spec, encoder, options, counts, "").rows(), 1);
}

TEST_F(TokenCache, AnUnwritableCacheCostsAWarning) {
  dir.write("cache", "a file where the directory should be");
  PrepareCounts counts;
  EXPECT_GT(prepare(counts).rows(), 0);
}

TEST_F(TokenCache, ManyAtOnceAgree) {
  std::vector<std::thread> threads;
  std::vector<std::uint64_t> prints(4);
  for (std::size_t t = 0; t < prints.size(); ++t)
    threads.emplace_back([&, t] {
      PrepareCounts counts;
      prints[t] = prepare_dataset_cached(spec, encoder, options, counts, dir.file("cache")).fingerprint();
    });
  for (auto& thread : threads) thread.join();
  for (const std::uint64_t print : prints) EXPECT_EQ(print, prints[0]);
  EXPECT_EQ(entries().size(), 1u);
}

TEST(TokenCacheDir, ComesFromTheEnvironment) {
  const char* old = std::getenv("MEGATOKEN_CACHE");
  const std::string kept = old ? old : "";
  ::setenv("MEGATOKEN_CACHE", "/somewhere", 1);
  EXPECT_EQ(default_cache_dir(), "/somewhere");
  ::setenv("MEGATOKEN_CACHE", "", 1);
  EXPECT_EQ(default_cache_dir(), "");
  ::unsetenv("MEGATOKEN_CACHE");
  EXPECT_THAT(default_cache_dir(), ::testing::AnyOf("", ::testing::EndsWith("/.cache/megatoken")));
  if (old) ::setenv("MEGATOKEN_CACHE", kept.c_str(), 1);
}

}  // namespace
}  // namespace megatoken
