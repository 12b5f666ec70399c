#include "text/encoder.h"

#include "base/error.h"
#include "io/file.h"
#include "text/json_checks.h"
#include "text/parallel.h"

namespace megatoken {
namespace {

constexpr std::size_t kSlice = 256 << 10;  // bytes of one text for a thread at a time
constexpr std::size_t kKept = 1 << 20;     // bytes of a text whose ids are written to a buffer that is kept

bool ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// End of a slice of about kSlice bytes from `at`: between a letter and a space, where every scanner's matches end,
// whatever stands before or behind.
std::size_t slice_end(std::string_view text, std::size_t at) {
  for (std::size_t end = at + kSlice; end < text.size(); ++end)
    if (text[end] == ' ' && ascii_letter(text[end - 1])) return end;
  return text.size();
}

}  // namespace

Encoder::Lease::Lease(const Encoder& owner) : owner_(owner) {
  {
    const std::lock_guard lock(owner.mutex_);
    if (!owner.free_.empty()) {
      work_ = std::move(owner.free_.back());
      owner.free_.pop_back();
    }
  }
  if (!work_) work_ = std::make_unique<Workspace>();
}

Encoder::Lease::~Lease() {
  const std::lock_guard lock(owner_.mutex_);
  owner_.free_.push_back(std::move(work_));
}

Encoder::Encoder(TokenizerFile& file, const std::vector<AddedToken>& more)
    : normalizer_(Normalizer::parse(part_of(file.root, "normalizer"), file.path + ": normalizer")),
      pre_tokenizer_(PreTokenizer::parse(part_of(file.root, "pre_tokenizer"), normalizer_.one_to_one(),
                                         file.path + ": pre_tokenizer")),
      model_(file, pre_tokenizer_.byte_level()) {
  if (const auto& list = part_of(file.root, "added_tokens"); !list.is_null())
    added_.read(list, vocabulary(), file.path);
  for (const AddedToken& token : more) {
    if (added_.find(token.content)) continue;
    added_.add(token, vocabulary());
    if (added_.find(token.content)->id != token.id)
      throw FileError("{}: tokenizer_config.json gives token \"{}\" the id {}, but it gets {}", file.path,
                      printable(token.content), token.id, added_.find(token.content)->id);
  }
  added_.build(normalizer_, file.path);
}

std::vector<std::int32_t> Encoder::encode(std::string_view text, int threads, const Lease& lease) const {
  if (text.empty()) return {};
  Workspace* const work = lease.work_.get();
  std::vector<Section> sections;
  added_.split_raw(text, sections);
  const auto encode_into = [&](IdBuffer& ids) {
    for (const Section& section : sections) {
      if (section.id != kNoId)
        ids.push_back(section.id);
      else
        encode_section(section.text, section.text.data() == text.data(), threads, work->bpe, ids);
    }
  };
  if (text.size() <= kKept) {
    work->ids.clear();
    encode_into(work->ids);
    return {work->ids.data(), work->ids.data() + work->ids.size()};
  }
  IdBuffer ids(text.size() / 3 + 16);  // English has about 3.7 bytes a token
  encode_into(ids);
  return ids.take();
}

void Encoder::encode_section(std::string_view text, bool at_origin, int threads, BpeWorkspace& work,
                             IdBuffer& ids) const {
  std::string storage;
  const std::string_view normalized = normalizer_.apply(text, storage);
  if (!added_.splits_normalized()) return encode_model_text(normalized, at_origin, threads, work, ids);
  std::vector<Section> sections;
  added_.split_normalized(normalized, sections);
  for (const Section& section : sections) {
    if (section.id != kNoId)
      ids.push_back(section.id);
    else
      encode_model_text(section.text, at_origin && section.text.data() == normalized.data(), threads, work, ids);
  }
}

void Encoder::encode_model_text(std::string_view text, bool at_origin, int threads, BpeWorkspace& work,
                                IdBuffer& ids) const {
  if (text.empty()) return;
  if (pre_tokenizer_.whole()) return model_.encode(text, text.size(), work, ids);
  const Scanner* scanner = pre_tokenizer_.scanner();
  if (!scanner) {
    pre_tokenizer_.split(text, at_origin, [&](std::string_view piece, bool) {
      if (!piece.empty()) model_.encode(piece, piece.size(), work, ids);
    });
    return;
  }
  if (threads <= 1 || text.size() <= kSlice) return scan(*scanner, text, work, ids);
  std::vector<std::string_view> slices;
  for (std::size_t at = 0; at < text.size(); at += slices.back().size())
    slices.push_back(text.substr(at, slice_end(text, at) - at));
  std::vector<std::vector<std::int32_t>> parts(slices.size());
  for_each_parallel(slices.size(), threads, [&](std::size_t i) {
    IdBuffer own(slices[i].size() / 3 + 16);
    const Lease other(*this);
    scan(*scanner, slices[i], other.work_->bpe, own);
    parts[i] = own.take();
  });
  for (auto& slice : parts) {
    ids.append(slice);
    std::vector<std::int32_t>().swap(slice);
  }
}

void Encoder::scan(const Scanner& scanner, std::string_view text, BpeWorkspace& work, IdBuffer& ids) const {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = scanner.next(text, at);
    model_.encode(text.substr(at, end - at), text.size() - at, work, ids);
    at = end;
  }
}

}  // namespace megatoken
