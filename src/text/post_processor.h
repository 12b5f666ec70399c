// Post-processors of tokenizer.json: which special tokens stand around a text.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/added_tokens.h"

namespace megatoken {

class PostProcessor {
 public:
  PostProcessor() = default;  // adds nothing
  // TemplateProcessing, ByteLevel (which changes offsets only), RobertaProcessing, BertProcessing, Sequence with at
  // most one of those that add tokens. FileError naming `where` for other kinds and for ids that no token has.
  static PostProcessor parse(const nlohmann::json& part, const Vocabulary& vocabulary, const AddedTokens& added,
                             const std::string& where);

  // The template for one text: its ids, and special tokens where wanted.
  void apply(bool add_special_tokens, std::vector<std::int32_t>& ids) const;

 private:
  struct Item {
    bool text;  // the text's ids; else special tokens
    std::vector<std::int32_t> ids;
  };
  std::vector<Item> items_;  // empty: the text alone
};

}  // namespace megatoken
