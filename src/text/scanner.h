// Hand-written equivalents of the split patterns in wide use. Each finds exactly the matches of its regular expression
// (tests compare with PCRE2), in linear time and without backtracking over long runs.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "text/unicode.h"

namespace megatoken {

class Scanner {
 public:
  // The scanner for a pattern of tokenizer.json, if there is one.
  static std::optional<Scanner> for_pattern(std::string_view pattern);
  // GPT-2's pattern, which ByteLevel uses with use_regex.
  static Scanner gpt2();

  // End of the match that starts at text[at] (at < size). Matches follow each other without gaps.
  std::size_t next(std::string_view text, std::size_t at) const {
    switch (family_) {
      case Family::gpt2:
        return next_gpt2(text, at);
      case Family::cl100k:
        return next_cl100k(text, at);
      case Family::o200k:
        return next_o200k(text, at);
    }
    return text.size();
  }

 private:
  enum class Family { gpt2, cl100k, o200k };
  Scanner(Family family, int digits, bool marks) : family_(family), digits_(digits), marks_(marks) {}

  std::size_t next_gpt2(std::string_view text, std::size_t at) const;
  std::size_t next_cl100k(std::string_view text, std::size_t at) const;
  std::size_t next_o200k(std::string_view text, std::size_t at) const;

  Family family_;
  int digits_;  // most digits in a piece
  bool marks_;  // cl100k: marks count as letters
};

}  // namespace megatoken
