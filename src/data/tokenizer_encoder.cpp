#include "data/tokenizer_encoder.h"

#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "data/digest.h"
#include "io/file.h"

namespace megatoken {
namespace {

// Every file that decides what the ids are.
std::string identity_of(const std::string& tokenizer_json) {
  Digest digest;
  digest.add(read_text_file(tokenizer_json));
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}) {
    const auto path = std::filesystem::path(tokenizer_json).replace_filename(name);
    std::error_code error;
    digest.add(std::filesystem::exists(path, error) ? read_text_file(path.string()) : std::string());
  }
  return digest.hex();
}

}  // namespace

TextEncoder make_text_encoder(std::shared_ptr<const Tokenizer> tokenizer, const std::string& eos_token) {
  TextEncoder encoder;
  encoder.identity = identity_of(tokenizer->path());
  encoder.eos_token = eos_token.empty() ? tokenizer->eos_token().value_or("") : eos_token;
  if (encoder.eos_token.empty())
    log_warning("{} names no eos_token: rows end without one (eos_token sets it)", tokenizer->path());
  else if (!tokenizer->token_to_id(encoder.eos_token)) {
    if (!eos_token.empty())
      throw ConfigError("eos_token: \"{}\" is not in the vocabulary of {}", printable(eos_token), tokenizer->path());
    throw FileError(
        "{}: the files beside it name the eos_token \"{}\", which is not in its vocabulary (eos_token names another)",
        tokenizer->path(), printable(encoder.eos_token));
  }
  encoder.encode = [tokenizer = std::move(tokenizer)](std::string_view text, int threads, int64& invalid_utf8) {
    EncodeStats stats;
    auto ids = tokenizer->encode(text, {.threads = threads}, &stats);
    invalid_utf8 += stats.invalid_utf8;
    return ids;
  };
  return encoder;
}

}  // namespace megatoken
