#include "text/scanner.h"

#include <gtest/gtest.h>

#include "text/split_regex.h"
#include "text/text_cases.h"

namespace megatoken {
namespace {

const std::vector<std::string>& patterns() {
  static const std::vector<std::string> all{
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
      R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
  return all;
}

// The scanner and PCRE2 cut a text at the same places.
void expect_equal(const Scanner& scanner, const SplitRegex& regex, const std::string& text) {
  std::size_t at = 0;
  bool equal = true;
  regex.for_each(text, [&](std::size_t begin, std::size_t end) {
    if (!equal) return;
    equal = begin == at && scanner.next(text, at) == end;
    EXPECT_TRUE(equal) << "at byte " << at << " of " << testing::PrintToString(text.substr(0, 400));
    at = end;
  });
  EXPECT_TRUE(!equal || at == text.size());
}

TEST(Scanner, CutsAsPcre2) {
  for (const std::string& pattern : patterns()) {
    const auto scanner = Scanner::for_pattern(pattern);
    ASSERT_TRUE(scanner) << pattern;
    const SplitRegex regex(pattern, "here");
    text_cases::RandomText text(11);
    for (int i = 0; i < 30000 && !HasFailure(); ++i) expect_equal(*scanner, regex, text());
    expect_equal(*scanner, regex, text_cases::every_code_point());
  }
}

TEST(Scanner, CutsLongRunsAsPcre2) {
  for (const std::string& pattern : patterns()) {
    const auto scanner = Scanner::for_pattern(pattern);
    const SplitRegex regex(pattern, "here");
    for (const char* unit :
         {"A", "a", "\n", " ", "\t", "\r\n", " \n", "'s", "1", "!", "\u4e2d", "\u0301", "A\u4e2d", "aB", "\n  "})
      for (const char* tail : {"", "x", "A", " ", "\n", "1", "!"}) {
        const std::string text = text_cases::times(unit, 20000) + tail;
        expect_equal(*scanner, regex, text);
      }
  }
}

TEST(Scanner, KnowsOnlyItsPatterns) {
  EXPECT_FALSE(Scanner::for_pattern(""));
  EXPECT_FALSE(Scanner::for_pattern(R"(\p{L}+)"));
  EXPECT_FALSE(Scanner::for_pattern(patterns()[1] + "|x"));
  std::string digits = patterns()[1];
  digits.replace(digits.find(R"(\p{N}|)"), 5, R"(\p{N}{1,2})");
  EXPECT_FALSE(Scanner::for_pattern(digits));
}

}  // namespace
}  // namespace megatoken
