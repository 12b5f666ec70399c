#include "text/scanner.h"

#include <array>
#include <climits>

namespace megatoken {
namespace {

// Classes of a character, bits.
enum Class : std::uint8_t {
  kL = 1,       // \p{L}
  kN = 2,       // \p{N}
  kS = 4,       // \s
  kBreak = 8,   // \r \n
  kM = 16,      // \p{M}
  kUpper = 32,  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
  kLower = 64,  // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
};

std::uint8_t classify(std::uint32_t properties) {
  using unicode::Category;
  const std::uint32_t bit = unicode::category_bit(unicode::category_of(properties));
  constexpr std::uint32_t kBoth = unicode::category_set(Category::Lm, Category::Lo) | unicode::kMark;
  std::uint8_t c = 0;
  if (bit & unicode::kLetter) c |= kL;
  if (bit & unicode::kNumber) c |= kN;
  if (bit & unicode::kMark) c |= kM;
  if (properties & unicode::kSpace) c |= kS;
  if (bit & (kBoth | unicode::category_set(Category::Lu, Category::Lt))) c |= kUpper;
  if (bit & (kBoth | unicode::category_set(Category::Ll))) c |= kLower;
  return c;
}

constexpr std::array<std::uint8_t, 128> kAscii = [] {
  std::array<std::uint8_t, 128> of{};
  for (unsigned c = 'a'; c <= 'z'; ++c) of[c] = kL | kLower;
  for (unsigned c = 'A'; c <= 'Z'; ++c) of[c] = kL | kUpper;
  for (unsigned c = '0'; c <= '9'; ++c) of[c] = kN;
  for (unsigned c = 9; c <= 13; ++c) of[c] = kS;
  of[' '] = kS;
  of['\r'] |= kBreak;
  of['\n'] |= kBreak;
  return of;
}();

// Reads classes out of valid UTF-8.
class Classes {
 public:
  explicit Classes(std::string_view text) : text_(text) {}
  // Class of the character at `at`, and where the next one starts.
  std::uint8_t operator()(std::size_t at, std::size_t& next) const {
    const auto byte = static_cast<unsigned char>(text_[at]);
    if (byte < 0x80) [[likely]] {
      next = at + 1;
      return kAscii[byte];
    }
    next = at;
    return classify(unicode::properties(unicode::decode(text_, next)));
  }

 private:
  std::string_view text_;
};

// End of the run of characters from `at` that satisfy member(class), of at most `most` characters.
template <typename Member>
std::size_t run_of(std::string_view text, std::size_t at, Member member, int most = INT_MAX) {
  const Classes classes(text);
  for (std::size_t next = at; at < text.size() && most > 0; at = next, --most)
    if (!member(classes(at, next))) break;
  return at;
}

char lower(char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c); }

// Length of (?i:'s|'t|'re|'ve|'m|'ll|'d) at text[at], 0 when it isn't there. Under (?i) the long s (U+017F) is an s.
std::size_t contraction(std::string_view text, std::size_t at) {
  if (at + 1 >= text.size() || text[at] != '\'') return 0;
  const char first = lower(text[at + 1]), second = at + 2 < text.size() ? lower(text[at + 2]) : '\0';
  switch (first) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return second == 'e' ? 3 : 0;
    case 'l':
      return second == 'l' ? 3 : 0;
    case '\xC5':
      return text[at + 1] == '\xC5' && at + 2 < text.size() && text[at + 2] == '\xBF' ? 3 : 0;
    default:
      return 0;
  }
}

// \s*[\r\n]+|\s+(?!\S)|\s+ (breaks) or \s+(?!\S)|\s+ from white space at text[at].
std::size_t space(std::string_view text, std::size_t at, bool breaks) {
  const Classes classes(text);
  std::size_t end = at, last = at, after_break = 0;
  for (std::size_t next = at; end < text.size(); end = next) {
    const std::uint8_t c = classes(end, next);
    if (!(c & kS)) break;
    last = end;
    if (c & kBreak) after_break = next;
  }
  if (breaks && after_break) return after_break;
  // White space before other text leaves its last character to what follows, unless it is the only one.
  return end < text.size() && last > at ? last : end;
}

bool other(std::uint8_t c, std::uint8_t letters) { return !(c & (kS | kN | letters)); }

}  // namespace

std::optional<Scanner> Scanner::for_pattern(std::string_view pattern) {
  static constexpr std::string_view kGpt2 =
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  static constexpr std::string_view kCl100kHead = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)";
  static constexpr std::string_view kCl100kTail = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  static constexpr std::string_view kMarksHead = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|)";
  static constexpr std::string_view kMarksTail = R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  static constexpr std::string_view kO200k =
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
      R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  if (pattern == kGpt2) return gpt2();
  if (pattern == kO200k) return Scanner(Family::o200k, 3, false);
  for (const bool marks : {false, true}) {
    const std::string_view head = marks ? kMarksHead : kCl100kHead, tail = marks ? kMarksTail : kCl100kTail;
    if (pattern.size() < head.size() + tail.size() || !pattern.starts_with(head) || !pattern.ends_with(tail)) continue;
    const std::string_view digits = pattern.substr(head.size(), pattern.size() - head.size() - tail.size());
    if (digits == R"(\p{N})") return Scanner(Family::cl100k, 1, marks);
    if (digits == R"(\p{N}{1,3})") return Scanner(Family::cl100k, 3, marks);
  }
  return std::nullopt;
}

Scanner Scanner::gpt2() { return Scanner(Family::gpt2, INT_MAX, false); }

std::size_t Scanner::next_gpt2(std::string_view text, std::size_t at) const {
  const Classes classes(text);
  std::size_t after;
  std::uint8_t c = classes(at, after);
  if (text[at] == '\'') {
    const std::size_t length = contraction(text, at);
    // Case matters here.
    if (length && text[at + 1] == lower(text[at + 1]) && text[at + 1] != '\xC5' &&
        text[at + length - 1] == lower(text[at + length - 1]))
      return at + length;
  }
  if (text[at] == ' ' && after < text.size()) {
    std::size_t unused;
    const std::uint8_t second = classes(after, unused);
    if (!(second & kS)) c = second;  // the space belongs to what follows
  }
  if (c & kL) return run_of(text, text[at] == ' ' ? after : at, [](std::uint8_t k) { return (k & kL) != 0; });
  if (c & kN) return run_of(text, text[at] == ' ' ? after : at, [](std::uint8_t k) { return (k & kN) != 0; });
  if (c & kS) return space(text, at, false);
  return run_of(text, after, [](std::uint8_t k) { return other(k, kL); });
}

std::size_t Scanner::next_cl100k(std::string_view text, std::size_t at) const {
  const Classes classes(text);
  const std::uint8_t letters = marks_ ? kL | kM : kL;
  const auto letter = [letters](std::uint8_t k) { return (k & letters) != 0; };
  std::size_t after;
  const std::uint8_t c = classes(at, after);
  if (letter(c)) return run_of(text, after, letter);
  if (c & kN)
    return run_of(
        text, after, [](std::uint8_t k) { return (k & kN) != 0; }, digits_ - 1);
  if (const std::size_t length = contraction(text, at)) return at + length;
  std::size_t second_end = after;
  const std::uint8_t second = after < text.size() ? classes(after, second_end) : std::uint8_t{kS};
  if (!(c & kBreak) && letter(second)) return run_of(text, second_end, letter);
  const auto rest = [letters](std::uint8_t k) { return other(k, letters); };
  const bool breaks_follow = other(c, letters) || (text[at] == ' ' && other(second, letters));
  if (!breaks_follow) return space(text, at, true);
  return run_of(text, run_of(text, after, rest), [](std::uint8_t k) { return (k & kBreak) != 0; });
}

std::size_t Scanner::next_o200k(std::string_view text, std::size_t at) const {
  const Classes classes(text);
  std::size_t after;
  const std::uint8_t c = classes(at, after);
  // [upper]*[lower]+ or, where no lower case can end it, [upper]+[lower]*, from `from`; 0 when neither matches.
  const auto word = [&](std::size_t from, bool second_form) -> std::size_t {
    std::size_t end = from, next = from,
                both_end = 0;  // both_end: behind the last character of the run in both classes
    std::uint8_t k = 0;
    for (; end < text.size(); end = next) {
      k = classes(end, next);
      if (!(k & kUpper)) break;
      if (k & kLower) both_end = next;
    }
    std::size_t stop = 0;
    if (!second_form) {
      if (end < text.size() && (k & kLower) && !(k & kUpper))
        stop = run_of(text, end, [](std::uint8_t m) { return (m & kLower) != 0; });
      else
        stop = both_end;
    } else if (end > from) {
      stop = end;  // no lower case follows, or the first form would have matched
    }
    return stop ? stop + contraction(text, stop) : 0;
  };
  const bool prefix = !(c & (kBreak | kL | kN));
  for (const bool second_form : {false, true}) {
    if (prefix && after < text.size())
      if (const std::size_t end = word(after, second_form)) return end;
    if (c & (kUpper | kLower))
      if (const std::size_t end = word(at, second_form)) return end;
  }
  if (c & kN)
    return run_of(
        text, after, [](std::uint8_t k) { return (k & kN) != 0; }, digits_ - 1);
  std::size_t unused;
  const std::uint8_t second = after < text.size() ? classes(after, unused) : std::uint8_t{kS};
  if (other(c, kL) || (text[at] == ' ' && other(second, kL))) {
    std::size_t end = run_of(text, after, [](std::uint8_t k) { return other(k, kL); });
    while (end < text.size() && (text[end] == '\r' || text[end] == '\n' || text[end] == '/')) ++end;
    return end;
  }
  return space(text, at, true);
}

}  // namespace megatoken
