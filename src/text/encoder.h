// Text to ids: added tokens, normalizer, pre-tokenizer, model, one behind the other.
#pragma once

#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/id_buffer.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_file.h"

namespace megatoken {

class Encoder {
  struct Workspace;

 public:
  // What one thread works with, out of a pool and given back at the end: its caches stay warm from text to text.
  class Lease {
   public:
    explicit Lease(const Encoder& owner);
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

   private:
    friend class Encoder;
    const Encoder& owner_;
    std::unique_ptr<Workspace> work_;
  };

  // The parts of tokenizer.json that decide the ids (its vocabulary is moved out), and the tokens that only
  // tokenizer_config.json names (given with the ids that it states).
  Encoder(TokenizerFile& file, const std::vector<AddedToken>& more);

  // The ids of valid UTF-8, without the post-processor's. Thread-safe, each thread with a lease of its own.
  std::vector<std::int32_t> encode(std::string_view text, int threads, const Lease& lease) const;

  const AddedTokens& added() const { return added_; }
  const Vocabulary& vocabulary() const { return model_.vocabulary(); }

 private:
  struct Workspace {
    BpeWorkspace bpe;
    IdBuffer ids{0};
  };
  void encode_section(std::string_view text, bool at_origin, int threads, BpeWorkspace& work, IdBuffer& ids) const;
  void encode_model_text(std::string_view text, bool at_origin, int threads, BpeWorkspace& work, IdBuffer& ids) const;
  void scan(const Scanner& scanner, std::string_view text, BpeWorkspace& work, IdBuffer& ids) const;

  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  BpeModel model_;
  AddedTokens added_;
  mutable std::mutex mutex_;  // of free_, the workspaces that no thread uses at the moment
  mutable std::vector<std::unique_ptr<Workspace>> free_;
};

}  // namespace megatoken
