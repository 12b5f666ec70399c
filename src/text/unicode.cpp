#include "text/unicode.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace megatoken::unicode {
namespace {

struct PropertyRange {
  std::uint32_t first, last, properties;
};
struct LowerRange {
  std::uint32_t first, last;
  int step, delta;
};
struct LowerLong {
  std::uint32_t code;
  const char* lower;
};

#include "text/unicode_ranges.inc"

constexpr std::uint32_t kCased = category_set(Category::Lu, Category::Ll, Category::Lt);

struct Named {
  const char* name;
  std::uint32_t set;
};

constexpr Named kNamed[] = {
    {"l", kLetter},
    {"letter", kLetter},
    {"lc", kCased},
    {"casedletter", kCased},
    {"lu", category_set(Category::Lu)},
    {"uppercaseletter", category_set(Category::Lu)},
    {"ll", category_set(Category::Ll)},
    {"lowercaseletter", category_set(Category::Ll)},
    {"lt", category_set(Category::Lt)},
    {"titlecaseletter", category_set(Category::Lt)},
    {"lm", category_set(Category::Lm)},
    {"modifierletter", category_set(Category::Lm)},
    {"lo", category_set(Category::Lo)},
    {"otherletter", category_set(Category::Lo)},
    {"m", kMark},
    {"mark", kMark},
    {"mn", category_set(Category::Mn)},
    {"nonspacingmark", category_set(Category::Mn)},
    {"mc", category_set(Category::Mc)},
    {"spacingmark", category_set(Category::Mc)},
    {"me", category_set(Category::Me)},
    {"enclosingmark", category_set(Category::Me)},
    {"n", kNumber},
    {"number", kNumber},
    {"nd", category_set(Category::Nd)},
    {"decimalnumber", category_set(Category::Nd)},
    {"nl", category_set(Category::Nl)},
    {"letternumber", category_set(Category::Nl)},
    {"no", category_set(Category::No)},
    {"othernumber", category_set(Category::No)},
    {"p",
     category_set(Category::Pc, Category::Pd, Category::Ps, Category::Pe, Category::Pi, Category::Pf, Category::Po)},
    {"punctuation",
     category_set(Category::Pc, Category::Pd, Category::Ps, Category::Pe, Category::Pi, Category::Pf, Category::Po)},
    {"pc", category_set(Category::Pc)},
    {"connectorpunctuation", category_set(Category::Pc)},
    {"pd", category_set(Category::Pd)},
    {"dashpunctuation", category_set(Category::Pd)},
    {"ps", category_set(Category::Ps)},
    {"openpunctuation", category_set(Category::Ps)},
    {"pe", category_set(Category::Pe)},
    {"closepunctuation", category_set(Category::Pe)},
    {"pi", category_set(Category::Pi)},
    {"initialpunctuation", category_set(Category::Pi)},
    {"pf", category_set(Category::Pf)},
    {"finalpunctuation", category_set(Category::Pf)},
    {"po", category_set(Category::Po)},
    {"otherpunctuation", category_set(Category::Po)},
    {"s", category_set(Category::Sm, Category::Sc, Category::Sk, Category::So)},
    {"symbol", category_set(Category::Sm, Category::Sc, Category::Sk, Category::So)},
    {"sm", category_set(Category::Sm)},
    {"mathsymbol", category_set(Category::Sm)},
    {"sc", category_set(Category::Sc)},
    {"currencysymbol", category_set(Category::Sc)},
    {"sk", category_set(Category::Sk)},
    {"modifiersymbol", category_set(Category::Sk)},
    {"so", category_set(Category::So)},
    {"othersymbol", category_set(Category::So)},
    {"z", category_set(Category::Zs, Category::Zl, Category::Zp)},
    {"separator", category_set(Category::Zs, Category::Zl, Category::Zp)},
    {"zs", category_set(Category::Zs)},
    {"spaceseparator", category_set(Category::Zs)},
    {"zl", category_set(Category::Zl)},
    {"lineseparator", category_set(Category::Zl)},
    {"zp", category_set(Category::Zp)},
    {"paragraphseparator", category_set(Category::Zp)},
    {"c", category_set(Category::Cn, Category::Cc, Category::Cf, Category::Co, Category::Cs)},
    {"other", category_set(Category::Cn, Category::Cc, Category::Cf, Category::Co, Category::Cs)},
    {"cc", category_set(Category::Cc)},
    {"control", category_set(Category::Cc)},
    {"cf", category_set(Category::Cf)},
    {"format", category_set(Category::Cf)},
    {"co", category_set(Category::Co)},
    {"privateuse", category_set(Category::Co)},
    {"cn", category_set(Category::Cn)},
    {"unassigned", category_set(Category::Cn)},
};

// Length of the valid character at text[at], or 0; then bad is the length of the maximal prefix that one U+FFFD stands
// for (Unicode standard, table 3-7).
std::size_t valid_length(std::string_view text, std::size_t at, std::size_t& bad) {
  const auto byte = [&](std::size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u; };
  const unsigned lead = byte(0);
  bad = 1;
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 0;
  for (bad = 2; bad < length; ++bad)
    if ((byte(bad) & 0xC0u) != 0x80) return 0;
  return length;
}

// First invalid byte at or behind at, or the size.
std::size_t skip_valid(std::string_view text, std::size_t at, std::size_t& bad) {
  while ((at = skip_ascii(text, at)) < text.size()) {
    // Text that isn't ASCII tends to stay so: test character by character before looking for ASCII again.
    while (at < text.size() && static_cast<unsigned char>(text[at]) >= 0x80) {
      const std::size_t length = valid_length(text, at, bad);
      if (length == 0) return at;
      at += length;
    }
  }
  return at;
}

}  // namespace

std::size_t skip_ascii(std::string_view text, std::size_t at) {
  constexpr std::uint64_t kHigh = 0x8080808080808080u;
  while (at + 32 <= text.size()) {
    std::uint64_t words[4];
    std::memcpy(words, text.data() + at, 32);
    if ((words[0] | words[1] | words[2] | words[3]) & kHigh) break;
    at += 32;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

Table::Table() {
  std::map<std::vector<std::uint32_t>, std::uint16_t> known;
  std::size_t range = 0;
  std::vector<std::uint32_t> block(256);
  for (std::uint32_t i = 0; i < index_.size(); ++i) {
    for (std::uint32_t j = 0; j < 256; ++j) {
      const std::uint32_t c = i * 256 + j;
      while (range < std::size(kPropertyRanges) && kPropertyRanges[range].last < c) ++range;
      const bool inside = range < std::size(kPropertyRanges) && kPropertyRanges[range].first <= c;
      block[j] = inside ? kPropertyRanges[range].properties : 0;
    }
    const auto [at, added] = known.try_emplace(block, static_cast<std::uint16_t>(known.size()));
    if (added) blocks_.insert(blocks_.end(), block.begin(), block.end());
    index_[i] = at->second;
  }
}

const Table& Table::get() {
  static const Table table;
  return table;
}

std::uint32_t category_set_of(std::string_view name) {
  std::string key;
  for (const char c : name)
    if (c != ' ' && c != '_' && c != '-') key += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  for (const Named& named : kNamed)
    if (key == named.name) return named.set;
  return 0;
}

void append_lower(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    return;
  }
  for (const LowerLong& lower : kLowerLong)
    if (lower.code == c) {
      out += lower.lower;
      return;
    }
  const auto* end = std::end(kLowerRanges);
  for (const auto *at = std::lower_bound(std::begin(kLowerRanges), end, c,
                                         [](const LowerRange&range, char32_t code) { return range.last < code; });
       at != end && at->first <= c; ++at)
    if ((c - at->first) % static_cast<std::uint32_t>(at->step) == 0) {
      append_utf8(static_cast<char32_t>(static_cast<std::int64_t>(c) + at->delta), out);
      return;
    }
  append_utf8(c, out);
}

void append_utf8(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

bool valid_utf8(std::string_view text) {
  std::size_t bad;
  return skip_valid(text, 0, bad) == text.size();
}

std::string replace_invalid_utf8(std::string_view text, int64& count) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  for (std::size_t at = 0; at < text.size();) {
    std::size_t bad = 0;
    const std::size_t end = skip_valid(text, at, bad);
    out += text.substr(at, end - at);
    if (end == text.size()) break;
    out += "\xEF\xBF\xBD";
    ++count;
    at = end + bad;
  }
  return out;
}

}  // namespace megatoken::unicode
