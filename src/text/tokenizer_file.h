// tokenizer.json as it stands in the file. The two large parts (vocabulary and merges) go straight into compact tables,
// the rest is small JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "text/vocabulary.h"

namespace megatoken {

// Pairs of token strings in order of rank.
class MergeList {
 public:
  void add(std::string_view left, std::string_view right);
  int64 size() const { return static_cast<int64>(ends_.size() / 2); }
  std::string_view left(int64 rank) const { return part(2 * rank); }
  std::string_view right(int64 rank) const { return part(2 * rank + 1); }

 private:
  std::string_view part(int64 i) const {
    const std::size_t at = static_cast<std::size_t>(i), start = i == 0 ? 0 : ends_[at - 1];
    return std::string_view(text_).substr(start, ends_[at] - start);
  }
  std::string text_;
  std::vector<std::uint32_t> ends_;
};

struct TokenizerFile {
  std::string path;
  nlohmann::json root;    // everything but model.vocab and model.merges
  Vocabulary vocabulary;  // built
  MergeList merges;
};

// Reads and checks the file's form: valid JSON and UTF-8, nesting at most 64, no key twice, `model` an object with an
// object `vocab` of integers and an array `merges` of "a b" or ["a", "b"]. FileError naming path and place otherwise.
TokenizerFile read_tokenizer_file(const std::string& path);
TokenizerFile parse_tokenizer_file(std::string_view text, const std::string& path);

}  // namespace megatoken
