// What stands beside tokenizer.json: the named special tokens and the chat template.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/added_tokens.h"

namespace megatoken {

struct TokenizerConfig {
  std::optional<std::string> bos, eos, pad, unk;  // token strings
  std::optional<std::string> chat_template;
  std::vector<AddedToken> tokens;  // added_tokens_decoder in order of id (their ids as stated), then the named tokens
};

// Reads tokenizer_config.json, special_tokens_map.json (where the former has no added_tokens_decoder, as transformers
// does) and chat_template.jinja of a directory; each may be missing. FileError for malformed ones.
TokenizerConfig read_tokenizer_config(const std::string& directory);

}  // namespace megatoken
