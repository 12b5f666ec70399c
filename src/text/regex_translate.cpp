#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <bitset>
#include <memory>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "io/file.h"
#include "text/split_regex.h"
#include "text/unicode.h"

namespace megatoken {
namespace {

using unicode::Category;

constexpr const char* kCategoryNames[unicode::kCategories] = {
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cs"};

std::string code_text(char32_t c) { return fmt::format("\\x{{{:X}}}", static_cast<std::uint32_t>(c)); }

// Class body (without brackets) of the code points for which member() holds.
template <typename Member>
std::string ranges_text(Member member) {
  std::string out;
  for (char32_t c = 0; c <= unicode::kMaxCodePoint; ++c) {
    if (c == 0xD800) c = 0xE000;
    if (!member(c)) continue;
    const char32_t first = c;
    while (c < unicode::kMaxCodePoint && c + 1 != 0xD800 && member(c + 1)) ++c;
    out += code_text(first);
    if (c > first) out += '-' + code_text(c);
  }
  return out;
}

// PCRE2's own general category of every code point, to see where its Unicode version differs from the tables'.
class PcreCategories {
 public:
  static const PcreCategories& get() {
    static const PcreCategories categories;
    return categories;
  }
  std::uint8_t operator[](char32_t c) const { return category_[c]; }

 private:
  PcreCategories() : category_(unicode::kMaxCodePoint + 1, 0) {
    std::string text;
    text.reserve(4 << 20);
    for (char32_t c = 0; c <= unicode::kMaxCodePoint; ++c) {
      if (c == 0xD800) c = 0xE000;
      unicode::append_utf8(c, text);
    }
    std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(pcre2_match_data_create(1, nullptr),
                                                                             &pcre2_match_data_free);
    for (int i = 1; i < unicode::kCategories; ++i) {
      if (static_cast<Category>(i) == Category::Cs) continue;
      const std::string pattern = fmt::format("\\p{{{}}}+", kCategoryNames[i]);
      int error;
      PCRE2_SIZE where;
      std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
          pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF, &error, &where,
                        nullptr),
          &pcre2_code_free);
      check(code && data, "pcre2 refuses {}", pattern);
      pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
      for (std::size_t at = 0; pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                           PCRE2_NO_UTF_CHECK, data.get(), nullptr) > 0;) {
        const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
        for (at = range[0]; at < range[1];) category_[unicode::decode(text, at)] = static_cast<std::uint8_t>(i);
      }
    }
  }
  std::vector<std::uint8_t> category_;
};

// Class body of one category: PCRE2's own where it is the same, with additions where it is smaller, else all ranges.
std::string category_text(int i) {
  static std::array<std::optional<std::string>, unicode::kCategories> known;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::optional<std::string>& text = known[static_cast<std::size_t>(i)];
  if (text) return *text;
  const PcreCategories& theirs = PcreCategories::get();
  const unicode::Table& table = unicode::Table::get();
  const auto ours = [&](char32_t c) { return static_cast<int>(unicode::category_of(table[c])) == i; };
  bool removed = false;
  for (char32_t c = 0; c <= unicode::kMaxCodePoint && !removed; ++c)
    removed = (c < 0xD800 || c > 0xDFFF) && theirs[c] == i && !ours(c);
  if (removed)
    text = ranges_text(ours);
  else
    text = fmt::format("\\p{{{}}}", kCategoryNames[i]) +
           ranges_text([&](char32_t c) { return ours(c) && theirs[c] != i; });
  return *text;
}

std::string set_text(std::uint32_t set) {
  std::string out;
  for (int i = 0; i < unicode::kCategories; ++i)
    if (set >> i & 1u && static_cast<Category>(i) != Category::Cs) out += category_text(i);
  return out;
}

std::string property_text(std::uint32_t property) {
  const unicode::Table& table = unicode::Table::get();
  return ranges_text([&](char32_t c) { return (table[c] & property) != 0; });
}

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where) : pattern_(pattern), where_(where) {}

  std::string run() {
    while (at_ < pattern_.size()) step();
    if (!groups_.empty()) refuse("an open group");
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw FileError("{}: pattern \"{}\": {} is not supported", where_, printable(pattern_), what);
  }
  bool more(std::size_t ahead = 0) const { return at_ + ahead < pattern_.size(); }
  char peek(std::size_t ahead = 0) const { return more(ahead) ? pattern_[at_ + ahead] : '\0'; }

  void atom(const std::string& text) {
    atom_ = out_.size();
    out_ += text;
    quantifiable_ = true;
    literal_ = '\0';
  }

  void step() {
    const char c = peek();
    switch (c) {
      case '\\':
        return escape();
      case '[':
        return bracket();
      case '(':
        return open_group();
      case ')':
        return close_group();
      case '|':
        out_ += c;
        ++at_;
        quantifiable_ = false;
        literal_ = '\0';
        return;
      case '*':
      case '+':
      case '?':
        return quantifier();
      case '{':
        return interval();
      case '^':
      case '$':  // of every line, in both
        assertion(std::string(1, c));
        ++at_;
        return;
      case '.':
        atom("[^\\n]");
        ++at_;
        return;
      default:
        return literal();
    }
  }

  void assertion(const std::string& text) {
    out_ += text;
    quantifiable_ = false;
    literal_ = '\0';
  }

  void literal() {
    const std::size_t start = at_;
    const char32_t c = unicode::decode(pattern_, at_);
    put_literal(c, std::string(pattern_.substr(start, at_ - start)));
  }

  // Oniguruma folds some characters to several ("ss" to U+00DF, "st", "ff", "fi", "fl" to ligatures); PCRE2 doesn't.
  void put_literal(char32_t c, const std::string& text) {
    const char before = literal_;
    atom(text);
    if (!ignore_case()) return;
    if (c >= 0x80) refuse("a character beyond ASCII under (?i)");
    const char lower = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    for (const char* joined : {"ss", "st", "ff", "fi", "fl"})
      if (before && before == joined[0] && lower == joined[1])
        refuse(fmt::format("\"{}{}\" under (?i)", before, lower));
    literal_ = lower;
  }

  bool ignore_case() const { return groups_.empty() ? global_ignore_case_ : groups_.back().ignore_case; }

  // An escape that stands for a set; its class body, negated or not.
  struct Set {
    std::string body;
    bool negated;
  };
  std::optional<Set> set_escape() {  // at_ stands on the letter
    const char c = peek();
    switch (c) {
      case 's':
      case 'S':
        ++at_;
        return Set{property_text(unicode::kSpace), c == 'S'};
      case 'd':
      case 'D':
        ++at_;
        return Set{set_text(unicode::category_set(Category::Nd)), c == 'D'};
      case 'w':
      case 'W':
        ++at_;
        return Set{property_text(unicode::kPatternWord), c == 'W'};
      case 'h':
      case 'H':
        ++at_;
        return Set{"0-9A-Fa-f", c == 'H'};
      case 'p':
      case 'P': {
        bool negated = c == 'P';
        if (peek(1) != '{') refuse("\\p without {}");
        at_ += 2;
        if (peek() == '^') {
          negated = !negated;
          ++at_;
        }
        const std::size_t close = pattern_.find('}', at_);
        if (close == pattern_.npos) refuse("\\p{ without }");
        const std::string name(pattern_.substr(at_, close - at_));
        at_ = close + 1;
        return Set{named_set(name), negated};
      }
      default:
        return std::nullopt;
    }
  }

  std::string named_set(const std::string& name) const {
    if (const std::uint32_t set = unicode::category_set_of(name)) return set_text(set);
    if (name == "Han") return property_text(unicode::kHan);
    if (name == "Hiragana") return property_text(unicode::kHiragana);
    if (name == "Katakana") return property_text(unicode::kKatakana);
    if (name == "Hangul") return property_text(unicode::kHangul);
    refuse("\\p{" + name + "}");
  }

  // An escape that stands for one character.
  char32_t character_escape() {
    const char c = peek();
    if (c == '\0' && !more()) refuse("a \\ at the end");
    if (static_cast<unsigned char>(c) >= 0x80) return unicode::decode(pattern_, at_);
    ++at_;
    switch (c) {
      case 't':
        return '\t';
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case 'a':
        return '\a';
      case 'e':
        return 0x1B;
      case 'x': {
        const bool braces = peek() == '{';
        if (braces) ++at_;
        const char32_t value = hex(braces ? 8 : 2);
        if (braces && peek() != '}') refuse("\\x{...}");
        if (braces) ++at_;
        if (!braces && value >= 0x80) refuse("\\xHH of 80 or more");
        return value;
      }
      case 'u':
        return hex(4, 4);
      default:
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) refuse(std::string("\\") + c);
        return static_cast<unsigned char>(c);
    }
  }

  char32_t hex(int most, int least = 1) {
    char32_t value = 0;
    int digits = 0;
    for (; digits < most && more(); ++digits, ++at_) {
      const char c = peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) break;
      value = value * 16 + static_cast<char32_t>(digit);
    }
    if (digits < least || value > unicode::kMaxCodePoint || (value >= 0xD800 && value < 0xE000))
      refuse("this code point");
    return value;
  }

  void escape() {
    ++at_;
    if (auto set = set_escape()) {
      if (ignore_case()) refuse("a set under (?i)");
      return atom((set->negated ? "[^" : "[") + set->body + "]");
    }
    const char c = peek();
    if (c == 'b' || c == 'B') {
      ++at_;
      const std::string word = fmt::format("[{}]", property_text(unicode::kPatternWord));
      const std::string here = "(?<=" + word + ")", ahead = "(?=" + word + ")", not_here = "(?<!" + word + ")",
                        not_ahead = "(?!" + word + ")";
      return assertion(c == 'b' ? "(?:" + here + not_ahead + "|" + not_here + ahead + ")"
                                : "(?:" + here + ahead + "|" + not_here + not_ahead + ")");
    }
    if (c == 'A' || c == 'z') {
      ++at_;
      return assertion(std::string("\\") + c);
    }
    const char32_t code = character_escape();
    put_literal(code, code_text(code));
  }

  void bracket() {
    ++at_;
    std::string body;
    const bool negated = peek() == '^';
    if (negated) ++at_;
    if (ignore_case() && negated) refuse("a negated class under (?i)");
    bool first = true;
    for (;; first = false) {
      if (!more()) refuse("[ without ]");
      if (peek() == ']' && !first) break;
      if (peek() == '[') refuse("[ in a class");
      if (peek() == '&' && peek(1) == '&') refuse("&& in a class");
      if (peek() == ']' || (peek() == '^' && first && negated)) refuse("this class");
      if (peek() == '\\') {
        ++at_;
        if (auto set = set_escape()) {
          if (ignore_case()) refuse("a set under (?i)");
          if (set->negated) {
            // PCRE2 has \P for single categories only; the complement's ranges are written out.
            refuse_or_complement(*set, body);
          } else {
            body += set->body;
          }
          if (peek() == '-' && peek(1) != ']') refuse("a range that starts with a set");
          continue;
        }
        if (peek() == 'b') refuse("\\b in a class");
        --at_;
      }
      const char32_t low = class_character();
      if (peek() == '-' && peek(1) != ']' && more(1)) {
        ++at_;
        if (peek() == '[') refuse("[ in a class");
        if (peek() == '\\') {
          const std::size_t back = at_++;
          if (set_escape()) refuse("a range that ends with a set");
          at_ = back;
        }
        const char32_t high = class_character();
        if (high < low) refuse("a range that runs backwards");
        body += code_text(low) + "-" + code_text(high);
      } else {
        body += code_text(low);
      }
    }
    ++at_;
    if (body.empty()) refuse("an empty class");
    atom((negated ? "[^" : "[") + body + "]");
  }

  void refuse_or_complement(const Set& set, std::string& body) {
    static const std::string kNotSpace =
        ranges_text([](char32_t c) { return !(unicode::properties(c) & unicode::kSpace); });
    if (set.body == property_text(unicode::kSpace))
      body += kNotSpace;
    else
      refuse("a negated set in a class");
  }

  char32_t class_character() {
    if (!more()) refuse("[ without ]");
    const bool escaped = peek() == '\\';
    if (escaped) ++at_;
    const char32_t c = escaped ? character_escape() : unicode::decode(pattern_, at_);
    if (ignore_case() && c >= 0x80) refuse("a character beyond ASCII under (?i)");
    return c;
  }

  void open_group() {
    Group group{out_.size(), ignore_case(), true};
    if (peek(1) != '?') {
      if (peek(1) == '*') refuse("(*");
      out_ += "(?:";  // no back references: captures need not be kept
      at_ += 1;
    } else {
      const std::string_view rest = pattern_.substr(at_);
      if (rest == "(?i)" || rest.starts_with("(?i)")) {
        if (at_ != 0) refuse("(?i) that isn't at the start");
        global_ignore_case_ = true;
        out_ += "(?i)";
        at_ += 4;
        return;
      }
      std::string_view opening;
      for (const std::string_view known : {"(?:", "(?i:", "(?=", "(?!", "(?>", "(?<=", "(?<!"})
        if (rest.starts_with(known)) opening = known;
      if (opening.empty()) refuse(std::string(rest.substr(0, 4)));
      if (opening == "(?i:") group.ignore_case = true;
      if (opening != "(?:" && opening != "(?i:" && opening != "(?>") group.quantifiable = false;
      out_ += opening;
      at_ += opening.size();
    }
    groups_.push_back(group);
    quantifiable_ = false;
    literal_ = '\0';
    if (groups_.size() > 100) refuse("nesting of more than 100 groups");
  }

  void close_group() {
    if (groups_.empty()) refuse("a ) without (");
    out_ += ')';
    ++at_;
    atom_ = groups_.back().start;
    quantifiable_ = groups_.back().quantifiable;
    groups_.pop_back();
    literal_ = '\0';
  }

  void quantifier() {
    if (!quantifiable_) refuse("a quantifier here");
    out_ += peek();
    ++at_;
    // Behind ?, * and + one more ? is lazy and one more + possessive, in both syntaxes.
    if (peek() == '?' || peek() == '+') {
      out_ += peek();
      ++at_;
    }
    quantifiable_ = false;
    literal_ = '\0';
    if (peek() == '?' || peek() == '*' || peek() == '+' || peek() == '{') refuse("a quantifier of a quantifier");
  }

  void interval() {
    const std::size_t start = at_++;
    const auto number = [&]() -> std::optional<int> {
      int value = 0, digits = 0;
      for (; peek() >= '0' && peek() <= '9' && digits < 6; ++digits, ++at_) value = value * 10 + (peek() - '0');
      return digits ? std::optional(value) : std::nullopt;
    };
    const auto low = number();
    std::optional<int> high = low;
    const bool comma = peek() == ',';
    if (comma) {
      ++at_;
      high = number();
    }
    if (peek() != '}' || (!low && !high)) {
      at_ = start;
      refuse("a { that is no interval");
    }
    ++at_;
    if (!quantifiable_) refuse("an interval here");
    if (high && low.value_or(0) > *high) refuse("an interval that runs backwards");
    out_ += fmt::format("{{{}", low.value_or(0));
    if (comma) out_ += high ? fmt::format(",{}", *high) : ",";
    out_ += '}';
    literal_ = '\0';
    if (peek() == '?' && comma) {  // lazy in both
      out_ += '?';
      ++at_;
      quantifiable_ = false;
      return;
    }
    // Ruby's {n,m}+ repeats the interval, and {n}? makes it optional.
    if (peek() == '+' || peek() == '?' || peek() == '*') {
      out_.insert(atom_, "(?:");
      out_ += ")";
      quantifiable_ = true;
      return;
    }
    quantifiable_ = false;
    if (peek() == '{') refuse("a quantifier of a quantifier");
  }

  struct Group {
    std::size_t start;
    bool ignore_case, quantifiable;
  };
  std::string_view pattern_;
  const std::string& where_;
  std::size_t at_ = 0, atom_ = 0;
  std::string out_;
  std::vector<Group> groups_;
  bool quantifiable_ = false, global_ignore_case_ = false;
  char literal_ = '\0';  // the last literal under (?i), lower case
};

}  // namespace

std::string translate_regex(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

}  // namespace megatoken
