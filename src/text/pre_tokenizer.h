// Pre-tokenizers of tokenizer.json: text into the pieces that the model works on one by one.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/function_ref.h"
#include "text/scanner.h"

namespace megatoken {

// Takes a piece; at_origin: its first character is the first of the whole input.
using PieceSink = FunctionRef<void(std::string_view piece, bool at_origin)>;

class PreTokenizerStage {
 public:
  virtual ~PreTokenizerStage() = default;
  virtual void split(std::string_view text, bool at_origin, const PieceSink& next) const = 0;
};

class PreTokenizer {
 public:
  PreTokenizer() = default;  // one piece
  // ByteLevel, Split, Digits, Metaspace, Punctuation, Whitespace, WhitespaceSplit, CharDelimiterSplit (also written
  // Delimiter), Sequence of these; others are a FileError naming `where` and the kind. one_to_one: the
  // normalizer keeps every character's place, without which Metaspace's prepend_scheme "first" is refused (the package
  // looks at the place in the text before normalization).
  static PreTokenizer parse(const nlohmann::json& part, bool one_to_one, const std::string& where);

  // The last stage is ByteLevel: the model works on the pieces' bytes, each written as a character of ByteAlphabet.
  bool byte_level() const { return byte_level_; }
  // When the whole work is one hand-written scanner, that scanner.
  const Scanner* scanner() const;
  // No stage at all: a text is one piece.
  bool whole() const { return stages_.empty(); }

  void split(std::string_view text, bool at_origin, const PieceSink& sink) const { run(0, text, at_origin, sink); }

 private:
  struct Builder;
  void run(std::size_t stage, std::string_view text, bool at_origin, const PieceSink& sink) const;

  std::vector<std::shared_ptr<const PreTokenizerStage>> stages_;
  std::shared_ptr<const Scanner> scanner_;
  bool byte_level_ = false;
};

}  // namespace megatoken
