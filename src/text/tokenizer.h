// Text to token ids and back, from a Hugging Face model directory. docs/tokenizers.md says what is supported.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace megatoken {

struct EncodeOptions {
  // Whether the post-processor's special tokens (a leading BOS, say) are added, as transformers does by default.
  // Special tokens that stand in the text are recognised in any case.
  bool add_special_tokens = true;
  // Threads to work with; the ids don't depend on it. One text uses more than one only where it can be cut safely.
  int threads = 1;
};

struct EncodeStats {
  int64 invalid_utf8 = 0;  // U+FFFD put in the place of invalid bytes
};

class Tokenizer {
 public:
  // Reads tokenizer.json, and tokenizer_config.json, special_tokens_map.json and chat_template.jinja where they are.
  // directory may also be the path of a tokenizer.json. FileError naming the file and the place for anything malformed
  // or not supported.
  static Tokenizer load(const std::string& directory);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // The ids of a text, equal to those of the `tokenizers` package. The text is any bytes: invalid UTF-8 is replaced by
  // U+FFFD as Python's bytes.decode("utf-8", errors="replace") does, and counted in stats (added to). Thread-safe. Time
  // grows near linearly on any text, no recursion. FileError where the vocabulary has no way to write a character
  // (unk_token missing from it).
  std::vector<std::int32_t> encode(std::string_view text, const EncodeOptions& options = {},
                                   EncodeStats* stats = nullptr) const;

  // The ids of many texts, worked on by options.threads threads.
  std::vector<std::vector<std::int32_t>> encode_batch(std::span<const std::string_view> texts,
                                                      const EncodeOptions& options = {},
                                                      EncodeStats* stats = nullptr) const;

  // Text for display; ids that no token has are left out.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens = false) const;

  int64 vocab_size() const;  // tokens, added ones included
  int64 id_limit() const;    // 1 + the largest id
  std::optional<std::int32_t> token_to_id(std::string_view token) const;
  std::optional<std::string> id_to_token(std::int32_t id) const;
  bool is_special(std::int32_t id) const;

  // As tokenizer_config.json names them (or the defaults of its tokenizer_class); nothing where it doesn't.
  std::optional<std::int32_t> bos_id() const;
  std::optional<std::int32_t> eos_id() const;
  std::optional<std::int32_t> pad_id() const;
  std::optional<std::int32_t> unk_id() const;
  std::optional<std::string> bos_token() const;
  std::optional<std::string> eos_token() const;
  std::optional<std::string> pad_token() const;

  // chat_template.jinja, else tokenizer_config.json's chat_template (the one named "default" of several).
  const std::optional<std::string>& chat_template() const;

  const std::string& path() const;  // of tokenizer.json

 private:
  class Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace megatoken
