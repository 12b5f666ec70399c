// Golden cases of tests/data/tokenizers (tools/golden_text_tokenizers.py) and random text for the text tests.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/unicode.h"

namespace megatoken::text_cases {

inline std::string folder(const std::string& family) {
  return std::string(MEGATOKEN_TEST_DATA) + "/data/tokenizers/" + family;
}

inline const std::vector<std::string>& families() {
  static const std::vector<std::string> all{"qwen", "llama3", "o200k", "gemma", "gpt2", "metaspace", "chain", "unk"};
  return all;
}

inline nlohmann::json read_json(const std::string& path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in);
}

inline std::string from_hex(const std::string& hex) {
  std::string out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return out;
}

inline std::string times(const std::string& unit, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += unit;
  return out;
}

// CRC-32 as zlib computes it, continued from `crc`.
inline std::uint32_t crc32(std::string_view bytes, std::uint32_t crc = 0) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> of{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t c = i;
      for (int k = 0; k < 8; ++k) c = c & 1 ? 0xEDB88320u ^ c >> 1 : c >> 1;
      of[i] = c;
    }
    return of;
  }();
  crc = ~crc;
  for (const char byte : bytes) crc = table[(crc ^ static_cast<unsigned char>(byte)) & 255u] ^ crc >> 8;
  return ~crc;
}

inline std::string digest_text(std::uint32_t crc) { return fmt::format("{:08x}", crc); }

inline std::string ids_digest(std::span<const std::int32_t> ids) {
  return digest_text(crc32({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(std::int32_t)}));
}

inline bool is_scalar(char32_t c) { return c <= unicode::kMaxCodePoint && (c < 0xD800 || c > 0xDFFF); }

inline std::string every_code_point() {
  std::string out;
  for (char32_t c = 0; c <= unicode::kMaxCodePoint; ++c)
    if (is_scalar(c)) unicode::append_utf8(c, out);
  return out;
}

// Valid UTF-8 rich in what the split patterns tell apart.
class RandomText {
 public:
  explicit RandomText(std::uint32_t seed) : random_(seed) {}

  std::string operator()() {
    std::string out;
    for (int n = below(14); n >= 0; --n) part(out);
    return out;
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<std::uint32_t>(n)); }

  void part(std::string& out) {
    static constexpr std::array<std::u32string_view, 9> kAlphabets = {
        U"abcstmdrevl",
        U"ABCSTMDREVL",
        U"0123456789\u0663\u00BD\u2167",
        U" \t\n\r\u00A0\u3000\u0085\u2028\u180E",
        U"'!/<|>.,-_\u2019\u00AB\U0001F600",
        U"\u4E2D\u3042\uAC00\u0627\u0E01\u00AA",
        U"\u0301\u0323\u20DD\u093C\u0345",
        U"\u01C5\u02B0\u017F\u00DF\u00C9\u00E9\u0130\uA7CB\u1C89",
        U"'sSTd\u017F l"};
    const auto alphabet =
        kAlphabets[static_cast<std::size_t>(below(static_cast<int>(kAlphabets.size()) + 1)) % kAlphabets.size()];
    const int repeats = below(4) == 0 ? below(30) : below(4);
    for (int i = 0; i <= repeats; ++i) {
      char32_t c = alphabet[static_cast<std::size_t>(below(static_cast<int>(alphabet.size())))];
      if (below(12) == 0) {
        do c = random_() % (below(2) ? 0x3000u : unicode::kMaxCodePoint + 1);
        while (!is_scalar(c));
      }
      unicode::append_utf8(c, out);
    }
  }

  std::mt19937 random_;
};

}  // namespace megatoken::text_cases
