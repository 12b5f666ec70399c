#include "text/tokenizer.h"

#include <malloc.h>

#include <atomic>
#include <exception>
#include <filesystem>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "io/file.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_file.h"
#include "text/unicode.h"

namespace megatoken {
namespace {

const nlohmann::json& part(const nlohmann::json& root, const char* key) {
  static const nlohmann::json kNull;
  const auto at = root.find(key);
  return at == root.end() ? kNull : *at;
}

}  // namespace

class Tokenizer::Impl {
 public:
  Impl(TokenizerFile file, TokenizerConfig config)
      : path_(file.path),
        config_(std::move(config)),
        normalizer_(Normalizer::parse(part(file.root, "normalizer"), path_ + ": normalizer")),
        pre_tokenizer_(
            PreTokenizer::parse(part(file.root, "pre_tokenizer"), normalizer_.one_to_one(), path_ + ": pre_tokenizer")),
        model_(file, pre_tokenizer_.byte_level()),
        decoder_(Decoder::parse(part(file.root, "decoder"), path_ + ": decoder")) {
    if (const auto& version = part(file.root, "version"); !version.is_null() && version != "1.0")
      throw FileError("{}: version {} is unknown (known: \"1.0\")", path_, printable(version.dump()));
    const Vocabulary& vocabulary = model_.vocabulary();
    if (const auto& list = part(file.root, "added_tokens"); !list.is_null()) added_.read(list, vocabulary, path_);
    for (const AddedToken& token : config_.tokens) {
      if (added_.find(token.content)) continue;
      added_.add(token, vocabulary);
      if (added_.find(token.content)->id != token.id)
        throw FileError("{}: tokenizer_config.json gives token \"{}\" the id {}, but it gets {}", path_,
                        printable(token.content), token.id, added_.find(token.content)->id);
    }
    config_.tokens.clear();
    added_.build(normalizer_, path_);
    post_ = PostProcessor::parse(part(file.root, "post_processor"), vocabulary, added_, path_ + ": post_processor");
  }

  std::vector<std::int32_t> encode(std::string_view text, bool add_special_tokens, EncodeStats& stats) const {
    std::string replaced;
    if (!unicode::valid_utf8(text)) {
      replaced = unicode::replace_invalid_utf8(text, stats.invalid_utf8);
      text = replaced;
    }
    std::vector<std::int32_t> ids;
    if (!text.empty()) {
      const Borrowed work(*this);
      IdBuffer buffer(text.size() / 3 + 16);  // English has about 3.7 bytes a token
      encode_valid(text, *work, buffer);
      ids = buffer.take();
    }
    post_.apply(add_special_tokens, ids);
    return ids;
  }

  std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const {
    std::vector<std::string> tokens;
    tokens.reserve(ids.size());
    for (const std::int32_t id : ids) {
      if (const AddedToken* token = added_.find(id)) {
        if (!skip_special_tokens || !token->special) tokens.push_back(added_.decoded_form(*token));
      } else if (model_.vocabulary().contains(id)) {
        tokens.emplace_back(model_.vocabulary().token(id));
      }
    }
    return decoder_.decode(std::move(tokens));
  }

  std::optional<std::int32_t> token_to_id(std::string_view token) const {
    if (const AddedToken* added = added_.find(token)) return added->id;
    const std::int32_t id = model_.vocabulary().find(token);
    return id == kNoId ? std::nullopt : std::optional(id);
  }

  const std::string& path() const { return path_; }
  const TokenizerConfig& config() const { return config_; }
  const AddedTokens& added() const { return added_; }
  const Vocabulary& vocabulary() const { return model_.vocabulary(); }

 private:
  // A workspace out of the pool, given back at the end.
  class Borrowed {
   public:
    explicit Borrowed(const Impl& owner) : owner_(owner) {
      const std::lock_guard lock(owner.mutex_);
      if (owner.free_.empty()) {
        work_ = std::make_unique<BpeWorkspace>();
      } else {
        work_ = std::move(owner.free_.back());
        owner.free_.pop_back();
      }
    }
    ~Borrowed() {
      const std::lock_guard lock(owner_.mutex_);
      owner_.free_.push_back(std::move(work_));
    }
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    BpeWorkspace& operator*() const { return *work_; }

   private:
    const Impl& owner_;
    std::unique_ptr<BpeWorkspace> work_;
  };

  void encode_valid(std::string_view text, BpeWorkspace& work, IdBuffer& ids) const {
    std::vector<Section> sections, inner;
    added_.split_raw(text, sections);
    std::string storage;
    for (const Section& section : sections) {
      if (section.id != kNoId) {
        ids.push_back(section.id);
        continue;
      }
      const bool at_origin = section.text.data() == text.data();
      const std::string_view normalized = normalizer_.apply(section.text, storage);
      if (!added_.splits_normalized()) {
        encode_section(normalized, at_origin, work, ids);
        continue;
      }
      inner.clear();
      added_.split_normalized(normalized, inner);
      for (const Section& piece : inner) {
        if (piece.id != kNoId)
          ids.push_back(piece.id);
        else
          encode_section(piece.text, at_origin && piece.text.data() == normalized.data(), work, ids);
      }
    }
  }

  void encode_section(std::string_view text, bool at_origin, BpeWorkspace& work, IdBuffer& ids) const {
    if (text.empty()) return;
    if (pre_tokenizer_.whole()) return model_.encode(text, text.size(), work, ids);
    if (const Scanner* scanner = pre_tokenizer_.scanner()) {
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = scanner->next(text, at);
        model_.encode(text.substr(at, end - at), text.size() - at, work, ids);
        at = end;
      }
      return;
    }
    pre_tokenizer_.split(text, at_origin, [&](std::string_view piece, bool) {
      if (!piece.empty()) model_.encode(piece, piece.size(), work, ids);
    });
  }

  std::string path_;
  TokenizerConfig config_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  BpeModel model_;
  Decoder decoder_;
  AddedTokens added_;
  PostProcessor post_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<BpeWorkspace>> free_;
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
  return impl_->encode(text, options.add_special_tokens, stats ? *stats : own);
}

std::vector<std::vector<std::int32_t>> Tokenizer::encode_batch(std::span<const std::string_view> texts,
                                                               const EncodeOptions& options, EncodeStats* stats) const {
  std::vector<std::vector<std::int32_t>> all(texts.size());
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  EncodeStats total;
  std::exception_ptr failure;
  const auto worker = [&] {
    EncodeStats own;
    try {
      for (std::size_t i; (i = next.fetch_add(1)) < texts.size();)
        all[i] = impl_->encode(texts[i], options.add_special_tokens, own);
    } catch (...) {
      next = texts.size();
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    total.invalid_utf8 += own.invalid_utf8;
  };
  std::vector<std::jthread> threads;
  for (int i = 1; i < options.threads && static_cast<std::size_t>(i) < texts.size(); ++i) threads.emplace_back(worker);
  worker();
  threads.clear();  // joins
  if (failure) std::rethrow_exception(failure);
  if (stats) stats->invalid_utf8 += total.invalid_utf8;
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
