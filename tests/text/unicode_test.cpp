#include "text/unicode.h"

#include <gtest/gtest.h>

#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/text_cases.h"

namespace megatoken {
namespace {

using text_cases::is_scalar;

const nlohmann::json& golden() {
  static const nlohmann::json all = text_cases::read_json(text_cases::folder("unicode.json"));
  return all;
}

// Every code point alone, between a base and two marks, and behind a Hangul syllable, whatever the versions of utf8proc
// and PCRE2.
TEST(Unicode, NormalizersTreatEveryCodePointAsThePackage) {
  ASSERT_EQ(golden()["normalizers"].size(), 7u);
  for (const auto& [kind, want] : golden()["normalizers"].items()) {
    const Normalizer normalizer = Normalizer::parse({{"type", kind}}, "here");
    std::uint32_t crc = 0;
    std::string storage, character;
    for (char32_t c = 0; c <= unicode::kMaxCodePoint; ++c) {
      if (!is_scalar(c)) continue;
      character.clear();
      unicode::append_utf8(c, character);
      for (const std::string& text : {character, "a" + character + "\u0301\u0327", "\uac00" + character})
        crc = text_cases::crc32(normalizer.apply(text, storage), crc);
    }
    EXPECT_EQ(text_cases::digest_text(crc), want.get<std::string>()) << kind;
  }
}

TEST(Unicode, PreTokenizersSplitEveryCodePointAsThePackage) {
  const std::string all = text_cases::every_code_point();
  ASSERT_GE(golden()["pre_tokenizers"].size(), 40u);
  for (const auto& item : golden()["pre_tokenizers"]) {
    const PreTokenizer split = PreTokenizer::parse(item["part"], true, "here");
    std::vector<std::int32_t> lengths;
    split.split(all, true,
                [&](std::string_view piece, bool) { lengths.push_back(static_cast<std::int32_t>(piece.size())); });
    EXPECT_EQ(lengths.size(), item["pieces"].get<std::size_t>()) << item["part"];
    EXPECT_EQ(text_cases::ids_digest(lengths), item["crc32"].get<std::string>()) << item["part"];
  }
}

TEST(Unicode, LongRunsOfMarksAreOrderedInShortTime) {
  const Normalizer nfc = Normalizer::parse({{"type", "NFC"}}, "here");
  std::string text = "a", storage;
  for (int i = 0; i < 300000; ++i) text += "\u0301\u0316";  // classes 230 and 220: every one moves
  const std::string_view result = nfc.apply(text, storage);
  EXPECT_EQ(result.size(), text.size() - 1);  // a and the first U+0301 join
  EXPECT_TRUE(result.starts_with("\u00e1\u0316\u0316"));
  EXPECT_TRUE(result.ends_with("\u0301\u0301"));
}

// What Python 3 prints for bytes.decode("utf-8", errors="replace").
TEST(Unicode, ReplacesInvalidBytesAsPython) {
  const struct {
    std::string bytes;
    std::string want;
  } cases[] = {
      {"plain", "plain"},
      {"\xff", "\uFFFD"},
      {"a\xE2\x82z", "a\uFFFDz"},
      {"\xE2\x82", "\uFFFD"},
      {"\xF0\x9F\x98", "\uFFFD"},
      {"\xF0\x9F\x98x", "\uFFFDx"},
      {"\xC0\xAF", "\uFFFD\uFFFD"},
      {"\xE0\x80\xAF", "\uFFFD\uFFFD\uFFFD"},
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
      {"\xF5\x80", "\uFFFD\uFFFD"},
      {"\xE2\x28\xA1", "\uFFFD(\uFFFD"},
      {"\x80\x80", "\uFFFD\uFFFD"},
      {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},
      {"\xEF\xBF\xBD", "\uFFFD"},
  };
  for (const auto& item : cases) {
    int64 count = 0;
    EXPECT_EQ(unicode::replace_invalid_utf8(item.bytes, count), item.want);
    const bool valid = item.bytes == item.want;
    EXPECT_EQ(unicode::valid_utf8(item.bytes), valid);
    EXPECT_EQ(count == 0, valid);
    const std::string far = std::string(100, 'x') + item.bytes;
    EXPECT_EQ(unicode::valid_utf8(far), valid);
  }
}

TEST(Unicode, NamesOfCategories) {
  using unicode::Category;
  EXPECT_EQ(unicode::category_set_of("Lu"), unicode::category_set(Category::Lu));
  EXPECT_EQ(unicode::category_set_of("Uppercase_Letter"), unicode::category_set(Category::Lu));
  EXPECT_EQ(unicode::category_set_of("letter"), unicode::kLetter);
  EXPECT_EQ(unicode::category_set_of("Klingon"), 0u);
}

}  // namespace
}  // namespace megatoken
