#include "text/pre_tokenizer.h"

#include "text/byte_alphabet.h"
#include "text/json_checks.h"
#include "text/split_regex.h"
#include "text/unicode.h"

namespace megatoken {
namespace {

constexpr const char* kKnown =
    "ByteLevel, Split, Digits, Metaspace, Punctuation, Whitespace, WhitespaceSplit, CharDelimiterSplit, Sequence";

enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

Behavior behavior_of(const std::string& name, const std::string& where) {
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  throw FileError("{}: \"behavior\" \"{}\" is unknown", where, printable(name));
}

struct Span {
  std::size_t begin, end;
  bool match;
};

// Sends the pieces that a behaviour makes of alternating matches and rests, which cover the text in order.
class Splitter {
 public:
  Splitter(std::string_view text, bool at_origin, Behavior behavior, bool invert, const PieceSink& next)
      : text_(text), at_origin_(at_origin), behavior_(behavior), invert_(invert), next_(next) {}

  void match(std::size_t begin, std::size_t end) {
    if (done_ != begin) span(done_, begin, false);
    span(begin, end, true);
    done_ = end;
  }
  void finish() {
    if (done_ != text_.size()) span(done_, text_.size(), false);
    if (behavior_ == Behavior::merged_with_next) merge_backwards();
    if (open_) emit(begin_, end_);
  }

 private:
  void emit(std::size_t begin, std::size_t end) {
    if (begin != end) next_(text_.substr(begin, end - begin), at_origin_ && begin == 0);
  }
  void span(std::size_t begin, std::size_t end, bool match) {
    match ^= invert_;
    switch (behavior_) {
      case Behavior::isolated:
        return emit(begin, end);
      case Behavior::removed:
        if (!match) emit(begin, end);
        return;
      case Behavior::contiguous:
        return join(begin, end, match == previous_, match);
      case Behavior::merged_with_previous:
        return join(begin, end, match && !previous_, match);
      case Behavior::merged_with_next:
        spans_.push_back({begin, end, match});
    }
  }
  void join(std::size_t begin, std::size_t end, bool joined, bool match) {
    if (!joined || !open_) {
      if (open_) emit(begin_, end_);
      begin_ = begin;
      open_ = true;
    }
    end_ = end;
    previous_ = match;
  }
  void merge_backwards() {
    std::vector<Span> merged;
    bool previous = false;
    for (auto at = spans_.rbegin(); at != spans_.rend(); ++at) {
      if (at->match && !previous && !merged.empty())
        merged.back().begin = at->begin;
      else
        merged.push_back(*at);
      previous = at->match;
    }
    for (auto at = merged.rbegin(); at != merged.rend(); ++at) emit(at->begin, at->end);
  }

  std::string_view text_;
  bool at_origin_;
  Behavior behavior_;
  bool invert_;
  const PieceSink& next_;
  std::size_t done_ = 0, begin_ = 0, end_ = 0;
  bool open_ = false, previous_ = false;
  std::vector<Span> spans_;
};

class ScannerStage final : public PreTokenizerStage {
 public:
  explicit ScannerStage(std::shared_ptr<const Scanner> scanner) : scanner_(std::move(scanner)) {}
  void split(std::string_view text, bool at_origin, const PieceSink& next) const override {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = scanner_->next(text, at);
      next(text.substr(at, end - at), at_origin && at == 0);
      at = end;
    }
  }

 private:
  std::shared_ptr<const Scanner> scanner_;
};

class RegexStage final : public PreTokenizerStage {
 public:
  RegexStage(SplitRegex regex, Behavior behavior, bool invert)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}
  void split(std::string_view text, bool at_origin, const PieceSink& next) const override {
    Splitter splitter(text, at_origin, behavior_, invert_, next);
    regex_.for_each(text, [&](std::size_t begin, std::size_t end) { splitter.match(begin, end); });
    splitter.finish();
  }

 private:
  SplitRegex regex_;
  Behavior behavior_;
  bool invert_;
};

class StringStage final : public PreTokenizerStage {
 public:
  StringStage(std::string delimiter, Behavior behavior, bool invert)
      : delimiter_(std::move(delimiter)), behavior_(behavior), invert_(invert) {}
  void split(std::string_view text, bool at_origin, const PieceSink& next) const override {
    Splitter splitter(text, at_origin, behavior_, invert_, next);
    for (std::size_t at = 0; (at = text.find(delimiter_, at)) != text.npos; at += delimiter_.size())
      splitter.match(at, at + delimiter_.size());
    splitter.finish();
  }

 private:
  std::string delimiter_;
  Behavior behavior_;
  bool invert_;
};

// Splits at every character with a property.
class PropertyStage final : public PreTokenizerStage {
 public:
  PropertyStage(std::uint32_t property, Behavior behavior) : property_(property), behavior_(behavior) {}
  void split(std::string_view text, bool at_origin, const PieceSink& next) const override {
    Splitter splitter(text, at_origin, behavior_, false, next);
    const unicode::Table& table = unicode::Table::get();
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t begin = at;
      if (table[unicode::decode(text, at)] & property_) splitter.match(begin, at);
    }
    splitter.finish();
  }

 private:
  std::uint32_t property_;
  Behavior behavior_;
};

// \w+|[^\w\s]+, the rest removed.
class WhitespaceStage final : public PreTokenizerStage {
 public:
  void split(std::string_view text, bool at_origin, const PieceSink& next) const override {
    const unicode::Table& table = unicode::Table::get();
    const auto kind = [&](std::size_t& at) {
      return table[unicode::decode(text, at)] & (unicode::kWord | unicode::kSpace);
    };
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t begin = at;
      const std::uint32_t first = kind(at);
      for (std::size_t ahead = at; at < text.size() && kind(ahead) == first; at = ahead) {
      }
      if (first != unicode::kSpace) next(text.substr(begin, at - begin), at_origin && begin == 0);
    }
  }
};

class PrefixSpaceStage final : public PreTokenizerStage {
 public:
  void split(std::string_view text, bool at_origin, const PieceSink& next) const override {
    if (text.starts_with(' ')) return next(text, at_origin);
    std::string prefixed = " ";
    prefixed += text;
    next(prefixed, at_origin);
  }
};

class ByteMapStage final : public PreTokenizerStage {
 public:
  void split(std::string_view text, bool at_origin, const PieceSink& next) const override {
    std::string mapped;
    ByteAlphabet::get().append(text, mapped);
    next(mapped, at_origin);
  }
};

class MetaspaceStage final : public PreTokenizerStage {
 public:
  enum class Prepend { first, never, always };
  MetaspaceStage(std::string replacement, Prepend prepend, bool split)
      : replacement_(std::move(replacement)), prepend_(prepend), split_(split) {}
  void split(std::string_view text, bool at_origin, const PieceSink& next) const override {
    std::string replaced;
    const bool prepend = (prepend_ == Prepend::always || (prepend_ == Prepend::first && at_origin)) &&
                         !text.starts_with(' ') && !text.starts_with(replacement_);
    replaced.reserve(text.size() + text.size() / 2 + replacement_.size());
    if (prepend) replaced = replacement_;
    std::size_t copied = 0;
    for (std::size_t at; (at = text.find(' ', copied)) != text.npos; copied = at + 1) {
      replaced.append(text, copied, at - copied);
      replaced += replacement_;
    }
    replaced.append(text, copied);
    if (!split_) return next(replaced, at_origin);
    Splitter splitter(replaced, at_origin, Behavior::merged_with_next, false, next);
    for (std::size_t at = 0; (at = replaced.find(replacement_, at)) != replaced.npos; at += replacement_.size())
      splitter.match(at, at + replacement_.size());
    splitter.finish();
  }

 private:
  std::string replacement_;
  Prepend prepend_;
  bool split_;
};

std::string one_character(const nlohmann::json& part, const char* key, const std::string& where) {
  const std::string& text = string_field(part, key, where);
  std::size_t at = 0;
  if (text.empty() || (unicode::decode(text, at), at != text.size()))
    throw FileError("{}: \"{}\" must be one character", where, key);
  return text;
}

}  // namespace

struct PreTokenizer::Builder {
  PreTokenizer to;
  bool one_to_one;

  template <typename Stage, typename... Args>
  void stage(Args&&... args) {
    if (to.byte_level_) {  // something follows ByteLevel: its mapping is carried out after all
      to.byte_level_ = false;
      to.stages_.push_back(std::make_shared<ByteMapStage>());
    }
    to.stages_.push_back(std::make_shared<Stage>(std::forward<Args>(args)...));
  }

  void scanner(const Scanner& scanner) {
    auto shared = std::make_shared<const Scanner>(scanner);
    stage<ScannerStage>(shared);
    to.scanner_ = to.stages_.size() == 1 ? shared : nullptr;
  }

  void add(const nlohmann::json& part, const std::string& where) {
    const std::string& kind = kind_of(part, where);
    if (kind == "Sequence") {
      const nlohmann::json& list = field(part, "pretokenizers", where);
      if (!list.is_array()) throw FileError("{}: \"pretokenizers\" must be an array", where);
      for (std::size_t i = 0; i < list.size(); ++i) add(list[i], fmt::format("{}.pretokenizers[{}]", where, i));
    } else if (kind == "ByteLevel") {
      if (bool_field(part, "add_prefix_space", where)) stage<PrefixSpaceStage>();
      if (bool_field(part, "use_regex", where, true)) scanner(Scanner::gpt2());
      // A ByteLevel right behind another maps the first one's characters again.
      if (to.byte_level_) to.stages_.push_back(std::make_shared<ByteMapStage>());
      to.byte_level_ = true;
    } else if (kind == "Split") {
      split(part, where);
    } else if (kind == "Digits") {
      stage<PropertyStage>(unicode::kNumeric,
                           bool_field(part, "individual_digits", where) ? Behavior::isolated : Behavior::contiguous);
    } else if (kind == "Punctuation") {
      const bool given = part.contains("behavior");
      stage<PropertyStage>(unicode::kPunctuation,
                           given ? behavior_of(string_field(part, "behavior", where), where) : Behavior::isolated);
    } else if (kind == "Whitespace") {
      stage<WhitespaceStage>();
    } else if (kind == "WhitespaceSplit") {
      stage<PropertyStage>(unicode::kSpace, Behavior::removed);
    } else if (kind == "CharDelimiterSplit" || kind == "Delimiter") {
      stage<StringStage>(one_character(part, "delimiter", where), Behavior::removed, false);
    } else if (kind == "Metaspace") {
      metaspace(part, where);
    } else {
      unknown_kind(kind, where, kKnown);
    }
  }

  void split(const nlohmann::json& part, const std::string& where) {
    PatternField pattern = pattern_field(part, where);
    const Behavior behavior = behavior_of(string_field(part, "behavior", where), where);
    const bool invert = bool_field(part, "invert", where);
    if (!pattern.regex) return stage<StringStage>(std::move(pattern.text), behavior, invert);
    // The scanners' matches cover everything, so that isolating them and removing the rest are the same.
    const bool covers = behavior == Behavior::isolated || (behavior == Behavior::removed && invert);
    if (const auto known = Scanner::for_pattern(pattern.text); known && covers) return scanner(*known);
    stage<RegexStage>(SplitRegex(pattern.text, where), behavior, invert);
  }

  void metaspace(const nlohmann::json& part, const std::string& where) {
    using Prepend = MetaspaceStage::Prepend;
    Prepend prepend = Prepend::always;
    if (part.contains("prepend_scheme")) {
      const std::string& scheme = string_field(part, "prepend_scheme", where);
      if (scheme == "first")
        prepend = Prepend::first;
      else if (scheme == "never")
        prepend = Prepend::never;
      else if (scheme != "always")
        throw FileError("{}: \"prepend_scheme\" \"{}\" is unknown", where, printable(scheme));
    }
    if (!bool_field(part, "add_prefix_space", where, true)) {
      if (part.contains("prepend_scheme") && prepend != Prepend::never)
        throw FileError("{}: \"add_prefix_space\" and \"prepend_scheme\" disagree", where);
      prepend = Prepend::never;
    }
    if (prepend == Prepend::first && !one_to_one)
      throw FileError("{}: \"prepend_scheme\" first behind this normalizer is not supported", where);
    stage<MetaspaceStage>(one_character(part, "replacement", where), prepend, bool_field(part, "split", where, true));
  }
};

PreTokenizer PreTokenizer::parse(const nlohmann::json& part, bool one_to_one, const std::string& where) {
  Builder builder{{}, one_to_one};
  if (!part.is_null()) builder.add(part, where);
  return std::move(builder.to);
}

const Scanner* PreTokenizer::scanner() const { return stages_.size() == 1 ? scanner_.get() : nullptr; }

void PreTokenizer::run(std::size_t stage, std::string_view text, bool at_origin, const PieceSink& sink) const {
  if (stage == stages_.size()) return sink(text, at_origin);
  stages_[stage]->split(text, at_origin,
                        [&, stage](std::string_view piece, bool origin) { run(stage + 1, piece, origin, sink); });
}

}  // namespace megatoken
