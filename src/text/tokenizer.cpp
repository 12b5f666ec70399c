#include "text/tokenizer.h"

#include <malloc.h>

#include <atomic>
#include <filesystem>

#include "base/error.h"
#include "io/file.h"
#include "text/decoder.h"
#include "text/encoder.h"
#include "text/json_checks.h"
#include "text/parallel.h"
#include "text/post_processor.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_file.h"
#include "text/unicode.h"

namespace megatoken {
namespace {

constexpr std::size_t kGroup = 64 << 10;  // bytes of texts that one thread takes at a time

}  // namespace

class Tokenizer::Impl {
 public:
  Impl(TokenizerFile file, TokenizerConfig config)
      : path_(file.path),
        encoder_(checked(file), config.tokens),
        decoder_(Decoder::parse(part_of(file.root, "decoder"), path_ + ": decoder")),
        post_(PostProcessor::parse(part_of(file.root, "post_processor"), encoder_.vocabulary(), encoder_.added(),
                                   path_ + ": post_processor")),
        config_(std::move(config)) {
    std::vector<AddedToken>().swap(config_.tokens);
  }

  std::vector<std::int32_t> encode(std::string_view text, bool add_special_tokens, int threads,
                                   const Encoder::Lease& lease, EncodeStats& stats) const {
    std::string replaced;
    if (!unicode::valid_utf8(text)) {
      replaced = unicode::replace_invalid_utf8(text, stats.invalid_utf8);
      text = replaced;
    }
    std::vector<std::int32_t> ids = encoder_.encode(text, threads, lease);
    post_.apply(add_special_tokens, ids);
    return ids;
  }

  std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const {
    std::vector<std::string> tokens;
    tokens.reserve(ids.size());
    for (const std::int32_t id : ids) {
      if (const AddedToken* token = encoder_.added().find(id)) {
        if (!skip_special_tokens || !token->special) tokens.push_back(encoder_.added().decoded_form(*token));
      } else if (encoder_.vocabulary().contains(id)) {
        tokens.emplace_back(encoder_.vocabulary().token(id));
      }
    }
    return decoder_.decode(std::move(tokens));
  }

  std::optional<std::int32_t> token_to_id(std::string_view token) const {
    if (const AddedToken* added = encoder_.added().find(token)) return added->id;
    const std::int32_t id = encoder_.vocabulary().find(token);
    return id == kNoId ? std::nullopt : std::optional(id);
  }

  const Encoder& encoder() const { return encoder_; }
  const std::string& path() const { return path_; }
  const TokenizerConfig& config() const { return config_; }
  const AddedTokens& added() const { return encoder_.added(); }
  const Vocabulary& vocabulary() const { return encoder_.vocabulary(); }

 private:
  static TokenizerFile& checked(TokenizerFile& file) {
    if (const auto& version = part_of(file.root, "version"); !version.is_null() && version != "1.0")
      throw FileError("{}: version {} is unknown (known: \"1.0\")", file.path, printable(version.dump()));
    return file;
  }

  std::string path_;
  Encoder encoder_;
  Decoder decoder_;
  PostProcessor post_;
  TokenizerConfig config_;
};

Tokenizer Tokenizer::load(const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path given(directory);
  const bool is_file = fs::is_regular_file(given, error);
  const fs::path file = is_file ? given : given / "tokenizer.json";
  if (!fs::exists(file, error))
    throw FileError("{}: not found; the tokenizer needs it", printable(file.string(), 4096));
  TokenizerConfig config = read_tokenizer_config(is_file ? given.parent_path().string() : directory);
  auto impl = std::make_unique<const Impl>(read_tokenizer_file(file.string()), std::move(config));
  ::malloc_trim(0);  // reading thousands of added tokens leaves megabytes of small free blocks
  return Tokenizer(std::move(impl));
}

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options,
                                            EncodeStats* stats) const {
  EncodeStats own;
  const Encoder::Lease lease(impl_->encoder());
  return impl_->encode(text, options.add_special_tokens, options.threads, lease, stats ? *stats : own);
}

std::vector<std::vector<std::int32_t>> Tokenizer::encode_batch(std::span<const std::string_view> texts,
                                                               const EncodeOptions& options, EncodeStats* stats) const {
  // Neighbours go to one thread, which would otherwise share the lines of memory of their results and the pool's lock.
  std::vector<std::size_t> ends;
  for (std::size_t i = 0, bytes = 0; i < texts.size(); ++i) {
    bytes += texts[i].size() + sizeof texts[i];
    if (bytes < kGroup && i + 1 < texts.size()) continue;
    ends.push_back(i + 1);
    bytes = 0;
  }
  std::vector<std::vector<std::int32_t>> all(texts.size());
  std::atomic<int64> invalid{0};
  for_each_parallel(ends.size(), options.threads, [&](std::size_t group) {
    EncodeStats own;
    const Encoder::Lease lease(impl_->encoder());
    for (std::size_t i = group == 0 ? 0 : ends[group - 1]; i < ends[group]; ++i)
      all[i] = impl_->encode(texts[i], options.add_special_tokens, 1, lease, own);
    if (own.invalid_utf8) invalid += own.invalid_utf8;
  });
  if (stats) stats->invalid_utf8 += invalid;
  return all;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const {
  return impl_->decode(ids, skip_special_tokens);
}

int64 Tokenizer::vocab_size() const {
  int64 size = impl_->vocabulary().size();
  for (const AddedToken& token : impl_->added().tokens()) size += impl_->vocabulary().find(token.content) == kNoId;
  return size;
}

int64 Tokenizer::id_limit() const {
  int64 limit = impl_->vocabulary().id_limit();
  for (const AddedToken& token : impl_->added().tokens()) limit = std::max<int64>(limit, token.id + 1);
  return limit;
}

std::optional<std::int32_t> Tokenizer::token_to_id(std::string_view token) const { return impl_->token_to_id(token); }

std::optional<std::string> Tokenizer::id_to_token(std::int32_t id) const {
  if (const AddedToken* added = impl_->added().find(id)) return added->content;
  if (!impl_->vocabulary().contains(id)) return std::nullopt;
  return std::string(impl_->vocabulary().token(id));
}

bool Tokenizer::is_special(std::int32_t id) const {
  const AddedToken* added = impl_->added().find(id);
  return added && added->special;
}

namespace {
std::optional<std::int32_t> id_of(const Tokenizer& tokenizer, const std::optional<std::string>& token) {
  return token ? tokenizer.token_to_id(*token) : std::nullopt;
}
}  // namespace

std::optional<std::int32_t> Tokenizer::bos_id() const { return id_of(*this, impl_->config().bos); }
std::optional<std::int32_t> Tokenizer::eos_id() const { return id_of(*this, impl_->config().eos); }
std::optional<std::int32_t> Tokenizer::pad_id() const { return id_of(*this, impl_->config().pad); }
std::optional<std::int32_t> Tokenizer::unk_id() const { return id_of(*this, impl_->config().unk); }
std::optional<std::string> Tokenizer::bos_token() const { return impl_->config().bos; }
std::optional<std::string> Tokenizer::eos_token() const { return impl_->config().eos; }
std::optional<std::string> Tokenizer::pad_token() const { return impl_->config().pad; }
const std::optional<std::string>& Tokenizer::chat_template() const { return impl_->config().chat_template; }
const std::string& Tokenizer::path() const { return impl_->path(); }

}  // namespace megatoken
