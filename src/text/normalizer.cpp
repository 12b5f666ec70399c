#include "text/normalizer.h"

#include <algorithm>

#include "text/byte_alphabet.h"
#include "text/json_checks.h"
#include "text/split_regex.h"
#include "text/unicode.h"
#include "text/unicode_forms.h"

namespace megatoken {
namespace {

constexpr const char* kKnown =
    "NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Nmt, Prepend, Replace, ByteLevel, Sequence";

// A step that treats every character by itself: change(c, out) appends what it becomes.
template <typename Change>
class EachCharacter final : public NormalizerStep {
 public:
  explicit EachCharacter(Change change) : change_(change) {}
  bool apply(std::string_view text, std::string& out) const override {
    out.reserve(text.size() + text.size() / 16);
    for (std::size_t at = 0; at < text.size();) change_(unicode::decode(text, at), out);
    return true;
  }

 private:
  Change change_;
};

template <typename Change>
std::shared_ptr<const NormalizerStep> each_character(Change change) {
  return std::make_shared<EachCharacter<Change>>(change);
}

// Nmt of SentencePiece: control characters removed, other kinds of white space made spaces.
void append_nmt(char32_t c, std::string& out) {
  const bool removed = (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
  const bool space = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                     c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
  if (removed) return;
  unicode::append_utf8(space ? U' ' : c, out);
}

bool one_character(std::string_view text) {
  std::size_t at = 0;
  return !text.empty() && (unicode::decode(text, at), at == text.size());
}

class StripStep final : public NormalizerStep {
 public:
  StripStep(bool left, bool right) : left_(left), right_(right) {}
  bool apply(std::string_view text, std::string& out) const override {
    std::size_t begin = 0, end = text.size();
    const auto space = [&](std::size_t at) {
      return (unicode::properties(unicode::decode(text, at)) & unicode::kSpace) != 0;
    };
    if (left_)
      while (begin < end && space(begin)) unicode::decode(text, begin);
    if (right_)
      while (end > begin && space(unicode::previous(text, end))) end = unicode::previous(text, end);
    out = text.substr(begin, end - begin);
    return true;
  }

 private:
  bool left_, right_;
};

class PrependStep final : public NormalizerStep {
 public:
  explicit PrependStep(std::string prefix) : prefix_(std::move(prefix)) {}
  bool apply(std::string_view text, std::string& out) const override {
    if (text.empty()) return false;
    out.reserve(prefix_.size() + text.size());
    out = prefix_;
    out += text;
    return true;
  }

 private:
  std::string prefix_;
};

class ReplaceString final : public NormalizerStep {
 public:
  ReplaceString(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  bool one_to_one() const override { return one_character(from_) && one_character(to_); }
  bool apply(std::string_view text, std::string& out) const override {
    std::size_t found = text.find(from_);
    if (found == text.npos) return false;
    std::size_t count = 0;
    for (std::size_t at = found; at != text.npos; at = text.find(from_, at + from_.size())) ++count;
    out.reserve(text.size() + count * to_.size() - count * from_.size());
    std::size_t copied = 0;
    for (; found != text.npos; found = text.find(from_, copied)) {
      out.append(text, copied, found - copied);
      out += to_;
      copied = found + from_.size();
    }
    out.append(text, copied);
    return true;
  }

 private:
  std::string from_, to_;
};

class ReplaceRegex final : public NormalizerStep {
 public:
  ReplaceRegex(SplitRegex from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  bool apply(std::string_view text, std::string& out) const override {
    std::size_t copied = 0;
    if (text.empty()) return false;
    from_.for_each(text, [&](std::size_t begin, std::size_t end) {
      out += text.substr(copied, begin - copied);
      out += to_;
      copied = end;
    });
    out += text.substr(copied);
    return true;
  }

 private:
  SplitRegex from_;
  std::string to_;
};

class ByteLevelStep final : public NormalizerStep {
 public:
  bool apply(std::string_view text, std::string& out) const override {
    ByteAlphabet::get().append(text, out);
    return true;
  }
};

std::shared_ptr<const NormalizerStep> make_step(const std::string& kind, const nlohmann::json& part,
                                                const std::string& where) {
  if (kind == "NFC") return make_unicode_form(UnicodeForm::nfc);
  if (kind == "NFD") return make_unicode_form(UnicodeForm::nfd);
  if (kind == "NFKC") return make_unicode_form(UnicodeForm::nfkc);
  if (kind == "NFKD") return make_unicode_form(UnicodeForm::nfkd);
  if (kind == "Lowercase") return each_character([](char32_t c, std::string& out) { unicode::append_lower(c, out); });
  if (kind == "StripAccents")
    return each_character([](char32_t c, std::string& out) {
      if (!(unicode::properties(c) & unicode::kAccent)) unicode::append_utf8(c, out);
    });
  if (kind == "Nmt") return each_character(append_nmt);
  if (kind == "Strip")
    return std::make_shared<StripStep>(bool_field(part, "strip_left", where), bool_field(part, "strip_right", where));
  if (kind == "Prepend") return std::make_shared<PrependStep>(string_field(part, "prepend", where));
  if (kind == "Replace") {
    PatternField pattern = pattern_field(part, where);
    const std::string& content = string_field(part, "content", where);
    if (pattern.regex) return std::make_shared<ReplaceRegex>(SplitRegex(pattern.text, where), content);
    return std::make_shared<ReplaceString>(std::move(pattern.text), content);
  }
  if (kind == "ByteLevel") return std::make_shared<ByteLevelStep>();
  unknown_kind(kind, where, kKnown);
}

}  // namespace

void Normalizer::add(const nlohmann::json& part, const std::string& where, Normalizer& to) {
  const std::string& kind = kind_of(part, where);
  if (kind != "Sequence") {
    to.steps_.push_back(make_step(kind, part, where));
    return;
  }
  const nlohmann::json& list = field(part, "normalizers", where);
  if (!list.is_array()) throw FileError("{}: \"normalizers\" must be an array", where);
  for (std::size_t i = 0; i < list.size(); ++i) add(list[i], fmt::format("{}.normalizers[{}]", where, i), to);
}

Normalizer Normalizer::parse(const nlohmann::json& part, const std::string& where) {
  Normalizer normalizer;
  if (!part.is_null()) add(part, where, normalizer);
  return normalizer;
}

bool Normalizer::one_to_one() const {
  return std::all_of(steps_.begin(), steps_.end(), [](const auto& step) { return step->one_to_one(); });
}

std::string_view Normalizer::apply(std::string_view text, std::string& storage) const {
  std::string next;
  bool stored = false;
  for (const auto& step : steps_) {
    next.clear();
    if (!step->apply(stored ? std::string_view(storage) : text, next)) continue;
    storage.swap(next);
    stored = true;
  }
  return stored ? std::string_view(storage) : text;
}

}  // namespace megatoken
