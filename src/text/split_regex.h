// Regular expressions of tokenizer.json. They are written for Oniguruma (Ruby's syntax); here they are translated to
// PCRE2 so that every match is the same, or refused by name.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "text/function_ref.h"

namespace megatoken {

// The PCRE2 pattern (for the options UTF, UCP, MULTILINE and newline LF) with the meaning that `pattern` has in
// Oniguruma. Classes come from text/unicode.h, so PCRE2's own Unicode version doesn't matter. FileError beginning with
// `where` for constructs that differ between the engines or that no tokenizer is known to use (back references, \G, \K,
// \R, \X, nested or intersected classes, POSIX brackets, scripts other than Han, Hiragana, Katakana and Hangul, ...).
std::string translate_regex(std::string_view pattern, const std::string& where);

class SplitRegex {
 public:
  SplitRegex(std::string_view pattern, const std::string& where);

  // Calls match(begin, end) for the matches in text (valid UTF-8) from left to right, as Oniguruma's find_iter: an
  // empty match right behind a match is skipped. Thread-safe; the JIT's stack is off the thread's stack and grows to 64
  // MiB, then the interpreter takes over; when that meets its limits too, FileError: never a different answer.
  void for_each(std::string_view text, FunctionRef<void(std::size_t, std::size_t)> match) const;

 private:
  std::shared_ptr<const void> code_;
  std::string where_;
};

}  // namespace megatoken
