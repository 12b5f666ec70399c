// Tokens that stand beside the model's vocabulary (special or not): found in the text before the model sees it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/dtype.h"
#include "text/normalizer.h"
#include "text/vocabulary.h"

namespace megatoken {

struct AddedToken {
  std::string content;
  std::int32_t id = kNoId;
  bool single_word = false, lstrip = false, rstrip = false, normalized = true, special = false;
};

// Finds the leftmost, then longest of a set of strings.
class StringMatcher {
 public:
  // FileError naming `where` for an empty string or one that stands twice.
  StringMatcher(std::vector<std::pair<std::string, std::int32_t>> strings, const std::string& where);
  StringMatcher() = default;

  bool empty() const { return nodes_.empty(); }
  // First match at or behind `from`: [begin, end) and the string's value; false when there is none.
  bool find(std::string_view text, std::size_t from, std::size_t& begin, std::size_t& end, std::int32_t& value) const;

 private:
  struct Node {
    std::int32_t value = -1;
    std::uint32_t first_edge = 0, edges = 0;
  };
  struct Edge {
    unsigned char byte;
    std::uint32_t node;
  };
  std::uint32_t child(std::uint32_t node, unsigned char byte) const;

  std::vector<Node> nodes_;  // a trie, the root first
  std::vector<Edge> edges_;
  std::vector<std::uint64_t>
      pairs_;            // bit first + 256 * second: a string begins so (a string of one byte: every second)
  int only_first_ = -1;  // the one first byte, if all strings share it
  std::int32_t longest_ = 0;
};

// Part of a text: an added token (id) or text for the model (kNoId).
struct Section {
  std::string_view text;
  std::int32_t id;
};

class AddedTokens {
 public:
  // Reads the `added_tokens` array. Ids follow the package's rule: a token of the vocabulary keeps its id, others
  // follow the largest; a stated id that differs is a FileError, as the package would silently give another one.
  void read(const nlohmann::json& list, const Vocabulary& vocabulary, const std::string& where);
  // Adds one token more, as transformers does with tokens that only tokenizer_config.json names.
  void add(AddedToken token, const Vocabulary& vocabulary);
  // Call after the last token.
  void build(const Normalizer& normalizer, const std::string& where);

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  const AddedToken* find(std::string_view content) const;
  const AddedToken* find(std::int32_t id) const;
  // What decoding starts from: the normalized form of normalized tokens.
  const std::string& decoded_form(const AddedToken& token) const;

  // Splits text that isn't normalized yet, or that is.
  void split_raw(std::string_view text, std::vector<Section>& out) const { split(text, raw_, out); }
  void split_normalized(std::string_view text, std::vector<Section>& out) const { split(text, normalized_, out); }
  bool splits_normalized() const { return !normalized_.empty(); }

 private:
  void split(std::string_view text, const StringMatcher& matcher, std::vector<Section>& out) const;

  std::vector<AddedToken> tokens_;
  std::vector<std::string> forms_;
  std::unordered_map<std::string, std::size_t> by_content_;
  std::unordered_map<std::int32_t, std::size_t> by_id_;
  StringMatcher raw_, normalized_;
};

}  // namespace megatoken
