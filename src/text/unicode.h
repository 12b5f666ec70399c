// Code points as the Hugging Face `tokenizers` package sees them, whatever Unicode versions the installed PCRE2 and
// utf8proc have. The tables are made by tools/golden_text_unicode.py.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace megatoken::unicode {

// General categories in the order of the tables. \p{..} of split patterns.
enum class Category : std::uint8_t {
  Cn,
  Lu,
  Ll,
  Lt,
  Lm,
  Lo,
  Mn,
  Mc,
  Me,
  Nd,
  Nl,
  No,
  Pc,
  Pd,
  Ps,
  Pe,
  Pi,
  Pf,
  Po,
  Sm,
  Sc,
  Sk,
  So,
  Zs,
  Zl,
  Zp,
  Cc,
  Cf,
  Co,
  Cs
};
constexpr int kCategories = 30;

// Properties beside the category, bits of properties().
enum Property : std::uint32_t {
  kSpace = 1u << 5,        // White_Space: \s, char::is_whitespace
  kPatternWord = 1u << 6,  // \w of split patterns
  kWord = 1u << 7,         // \w of added tokens' single_word and of the Whitespace pre-tokenizer
  kNumeric = 1u << 8,      // Nd, Nl, No of the Digits pre-tokenizer
  kPunctuation = 1u << 9,  // of the Punctuation pre-tokenizer
  kAccent = 1u << 10,      // removed by StripAccents
  kNfd = 1u << 11,         // NFD changes it or may move it
  kNfkd = 1u << 12,
  kNfc = 1u << 13,  // NFC changes it, may move it or may join it to what stands before
  kNfkc = 1u << 14,
  kComposes = 1u << 15,  // NFC may join what follows to it, or move it into its decomposition
  kHan = 1u << 16,
  kHiragana = 1u << 17,
  kKatakana = 1u << 18,
  kHangul = 1u << 19,
};

constexpr char32_t kReplacement = 0xFFFD;
constexpr char32_t kMaxCodePoint = 0x10FFFF;

// Two-stage table of properties; built once, read-only afterwards.
class Table {
 public:
  static const Table& get();
  std::uint32_t operator[](char32_t c) const { return blocks_[index_[c >> 8] * 256u + (c & 255u)]; }

 private:
  Table();
  std::array<std::uint16_t, 0x1100> index_{};
  std::vector<std::uint32_t> blocks_;
};

inline std::uint32_t properties(char32_t c) { return Table::get()[c]; }
inline Category category_of(std::uint32_t properties) { return static_cast<Category>(properties & 31u); }

constexpr std::uint32_t category_bit(Category c) { return 1u << static_cast<unsigned>(c); }
template <typename... C>
constexpr std::uint32_t category_set(C... c) {
  return (category_bit(c) | ...);
}
constexpr std::uint32_t kLetter = category_set(Category::Lu, Category::Ll, Category::Lt, Category::Lm, Category::Lo);
constexpr std::uint32_t kMark = category_set(Category::Mn, Category::Mc, Category::Me);
constexpr std::uint32_t kNumber = category_set(Category::Nd, Category::Nl, Category::No);

// Set of categories named by \p{name}: "L", "Lu", "Letter", "Uppercase_Letter", case, spaces, - and _ ignored; 0 when
// it is no category.
std::uint32_t category_set_of(std::string_view name);

// Lower case as Rust's char::to_lowercase, appended as UTF-8.
void append_lower(char32_t c, std::string& out);

// Decodes the character at text[at] of valid UTF-8 and advances at.
inline char32_t decode(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return at += 1, lead;
  if (lead < 0xE0) {
    const char32_t c = (lead & 0x1Fu) << 6 | (byte(1) & 0x3Fu);
    return at += 2, c;
  }
  if (lead < 0xF0) {
    const char32_t c = (lead & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
    return at += 3, c;
  }
  const char32_t c = (lead & 0x07u) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu);
  return at += 4, c;
}

// Start of the character that ends before text[at] (at > 0) of valid UTF-8.
inline std::size_t previous(std::string_view text, std::size_t at) {
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0u) == 0x80);
  return at;
}

// First byte that isn't ASCII at or behind `at`, or the size.
std::size_t skip_ascii(std::string_view text, std::size_t at);

void append_utf8(char32_t c, std::string& out);

// True when the text is valid UTF-8 (no surrogates, no overlong forms, nothing above U+10FFFF).
bool valid_utf8(std::string_view text);

// The text with every invalid sequence replaced by U+FFFD exactly as Python's bytes.decode("utf-8", errors="replace")
// does (one for each maximal prefix of a valid sequence, else one a byte). Adds the number of replacements to count.
std::string replace_invalid_utf8(std::string_view text, int64& count);

}  // namespace megatoken::unicode
