#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "text/text_cases.h"

namespace megatoken {
namespace {

using text_cases::folder;
using text_cases::from_hex;

class Family : public testing::TestWithParam<std::string> {
 protected:
  Tokenizer tokenizer_ = Tokenizer::load(folder(GetParam()));
  nlohmann::json golden_ = text_cases::read_json(folder(GetParam()) + "/golden.json");
};

TEST_P(Family, GivesThePackagesIds) {
  ASSERT_GE(golden_["cases"].size(), 100u);
  for (const auto& item : golden_["cases"]) {
    const std::string text = from_hex(item["hex"]);
    const auto want = item["ids"].get<std::vector<std::int32_t>>();
    EncodeStats stats;
    EXPECT_EQ(tokenizer_.encode(text, {.add_special_tokens = false}, &stats), want) << item["hex"];
    EXPECT_EQ(stats.invalid_utf8, item["replaced"].get<int64>()) << item["hex"];
    std::vector<std::int32_t> full = want;
    if (item.contains("special")) {
      const auto front = item["special"][0].get<std::vector<std::int32_t>>();
      const auto back = item["special"][1].get<std::vector<std::int32_t>>();
      full.insert(full.begin(), front.begin(), front.end());
      full.insert(full.end(), back.begin(), back.end());
    }
    EXPECT_EQ(tokenizer_.encode(text), full) << item["hex"];
    EXPECT_EQ(tokenizer_.decode(want), item["text"].get<std::string>()) << item["hex"];
  }
}

TEST_P(Family, GivesThePackagesIdsOfLongRuns) {
  for (const auto& item : golden_["long"]) {
    const std::string text = text_cases::times(from_hex(item["unit"]), item["times"].get<std::size_t>());
    const auto ids = tokenizer_.encode(text, {.add_special_tokens = false});
    EXPECT_EQ(ids.size(), item["count"].get<std::size_t>()) << item["unit"];
    EXPECT_EQ(text_cases::ids_digest(ids), item["crc32"].get<std::string>()) << item["unit"];
  }
}

// Threads, a shared cache and a text's neighbours change nothing.
TEST_P(Family, BatchesAndThreadsGiveTheSame) {
  std::vector<std::string> texts;
  for (const auto& item : golden_["cases"]) texts.push_back(from_hex(item["hex"]));
  std::vector<std::string_view> views;
  for (int round = 0; round < 3; ++round) views.insert(views.end(), texts.begin(), texts.end());
  std::vector<std::vector<std::int32_t>> want;
  EncodeStats one;
  for (const auto view : views) want.push_back(tokenizer_.encode(view, {}, &one));
  for (const int threads : {1, 2, 5}) {
    EncodeStats many;
    EXPECT_EQ(tokenizer_.encode_batch(views, {.threads = threads}, &many), want);
    EXPECT_EQ(many.invalid_utf8, one.invalid_utf8);
  }
  std::string joined;
  for (int round = 0; round < 400; ++round)
    joined += "And the evening and the morning were day " + std::to_string(round) + ".\n ";
  const auto alone = tokenizer_.encode(joined);
  for (const int threads : {2, 3, 8}) EXPECT_EQ(tokenizer_.encode(joined, {.threads = threads}), alone);
}

INSTANTIATE_TEST_SUITE_P(All, Family, testing::ValuesIn(text_cases::families()),
                         [](const auto& family) { return family.param; });

TEST(Tokenizer, KnowsItsSpecialTokens) {
  const Tokenizer qwen = Tokenizer::load(folder("qwen"));
  EXPECT_EQ(qwen.eos_token(), "<|im_end|>");
  EXPECT_EQ(qwen.eos_id(), qwen.token_to_id("<|im_end|>"));
  EXPECT_EQ(qwen.pad_id(), qwen.token_to_id("<|endoftext|>"));
  EXPECT_EQ(qwen.bos_id(), std::nullopt);
  EXPECT_EQ(qwen.chat_template(), "{{ messages[0].content }}");
  EXPECT_TRUE(qwen.is_special(*qwen.eos_id()));
  EXPECT_FALSE(qwen.is_special(*qwen.token_to_id("<think>")));
  EXPECT_EQ(qwen.id_to_token(*qwen.eos_id()), "<|im_end|>");
  EXPECT_EQ(qwen.id_to_token(1 << 20), std::nullopt);
  EXPECT_EQ(qwen.token_to_id("no such token"), std::nullopt);
  EXPECT_EQ(qwen.id_limit(), qwen.vocab_size());
  EXPECT_EQ(qwen.decode(qwen.encode("a<|im_end|>b<think>"), true), "ab<think>");

  const Tokenizer llama = Tokenizer::load(folder("llama3"));
  EXPECT_EQ(llama.eos_token(), "<|eot_id|>");  // an object in the configuration
  EXPECT_EQ(llama.encode(""), std::vector<std::int32_t>{*llama.bos_id()});
  EXPECT_TRUE(llama.encode("", {.add_special_tokens = false}).empty());

  const Tokenizer unk = Tokenizer::load(folder("unk"));  // without tokenizer_config.json
  EXPECT_EQ(unk.eos_id(), std::nullopt);
  EXPECT_EQ(unk.chat_template(), std::nullopt);
}

TEST(Tokenizer, LoadsAFileByItsOwnPath) {
  EXPECT_EQ(Tokenizer::load(folder("qwen") + "/tokenizer.json").encode("hello"),
            Tokenizer::load(folder("qwen")).encode("hello"));
}

TEST(Tokenizer, TheDemosHasOneTokenAByte) {
  const Tokenizer bytes = Tokenizer::load(std::string(MEGATOKEN_TEST_DATA) + "/../configs/demo");
  EXPECT_EQ(bytes.vocab_size(), 257);
  EXPECT_EQ(bytes.eos_id(), 256);
  std::string all;
  for (int b = 1; b < 128; ++b) all += static_cast<char>(b);
  all += "\u00e9\u4e2d\U0001F600";
  std::vector<std::int32_t> want;
  for (const char c : all) want.push_back(static_cast<unsigned char>(c));
  EXPECT_EQ(bytes.encode(all), want);
  want.push_back(256);
  EXPECT_EQ(bytes.encode(all + "<|endoftext|>"), want);
  EXPECT_EQ(bytes.decode(want), all + "<|endoftext|>");
  EXPECT_EQ(bytes.decode(std::vector<std::int32_t>{0xE4, 0xB8}), "\uFFFD");
}

// The whole of Invariant 11's kind: no recursion by length, so a small stack is enough.
TEST(Tokenizer, LongInputsNeedLittleStack) {
  const Tokenizer chain = Tokenizer::load(folder("chain"));  // the general pattern path
  const Tokenizer qwen = Tokenizer::load(folder("qwen"));
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 256 << 10), 0);
  struct Work {
    const Tokenizer *first, *second;
    std::size_t ids = 0;
  } work{&chain, &qwen};
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, &attributes,
                [](void* argument) -> void* {
                  auto& w = *static_cast<Work*>(argument);
                  for (const char c : {'A', '\n', ' ', '\'', '\0', '\xCC', '9'})
                    for (const Tokenizer* t : {w.first, w.second}) w.ids += t->encode(std::string(1000000, c)).size();
                  return nullptr;
                },
                &work),
            0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  EXPECT_GT(work.ids, 0u);
}

// Optional: real tokenizers, a folder each in the folder that the variable names.
TEST(Tokenizer, RealFilesLoad) {
  const char* root = std::getenv("MEGATOKEN_TOKENIZER_FIXTURES");
  if (!root) GTEST_SKIP() << "MEGATOKEN_TOKENIZER_FIXTURES names no folder of tokenizers";
  int loaded = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (!std::filesystem::exists(entry.path() / "tokenizer.json")) continue;
    const Tokenizer tokenizer = Tokenizer::load(entry.path().string());
    ++loaded;
    const std::string text = "Hello, world! 1234\n\n caf\u00e9 \u4e2d\u6587";
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, {.add_special_tokens = false})), text) << entry.path();
    // With golden.json beside it, as tools/golden_text_compare.py writes it: the ids.
    const auto golden = entry.path() / "golden.json";
    if (!std::filesystem::exists(golden)) continue;
    for (const auto& item : text_cases::read_json(golden.string())["cases"])
      EXPECT_EQ(tokenizer.encode(from_hex(item["hex"]), {.add_special_tokens = false}),
                item["ids"].get<std::vector<std::int32_t>>());
  }
  EXPECT_GT(loaded, 0);
}

}  // namespace
}  // namespace megatoken
