#include "text/bpe.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "text/byte_alphabet.h"
#include "text/hash.h"
#include "text/json_checks.h"
#include "text/unicode.h"

namespace megatoken {
namespace {

constexpr std::size_t kJoinedBits = std::size_t{1} << 20;
constexpr std::size_t kCutBeyond = 32;  // bytes; longer pieces are cut where no merge can join

std::size_t joined_bit(char32_t left, char32_t right) {
  if (left < 128 && right < 128) return left * 128 + right;  // ASCII pairs have bits of their own
  return 128 * 128 + hash_pair(left, right) % (kJoinedBits - 128 * 128);
}

// Bytes of a key that belong to a piece of each length, the length itself in the last byte.
struct KeyMasks {
  constexpr KeyMasks() {
    for (std::size_t length = 0; length < 32; ++length) {
      for (std::size_t i = 0; i < length; ++i) keep[length][i / 8] |= std::uint64_t{0xFF} << i % 8 * 8;
      tag[length] = static_cast<std::uint64_t>(length) << 56;
    }
  }
  std::array<std::array<std::uint64_t, 4>, 32> keep{};
  std::array<std::uint64_t, 32> tag{};
};
constexpr KeyMasks kMasks;

std::string optional_text(const nlohmann::json& model, const char* key, const std::string& where) {
  return model.contains(key) && !model[key].is_null() ? string_field(model, key, where) : std::string();
}

}  // namespace

static_assert(std::endian::native == std::endian::little, "cache keys are read as little-endian words");

BpeWorkspace::BpeWorkspace() {
  // On huge pages where the system has them: pieces fall all over the table, and each miss of the address cache costs
  // as much as the lookup.
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  static_assert(kEntries * sizeof(Entry) % kHugePage == 0);
  void* memory = std::aligned_alloc(kHugePage, kEntries * sizeof(Entry));
  if (!memory) throw std::bad_alloc();
  ::madvise(memory, kEntries * sizeof(Entry), MADV_HUGEPAGE);
  std::memset(memory, 0, kEntries * sizeof(Entry));
  cache_.reset(static_cast<Entry*>(memory));
}

void BpeWorkspace::Free::operator()(Entry* p) const { std::free(p); }

BpeModel::BpeModel(TokenizerFile& file, bool byte_level)
    : vocabulary_(std::move(file.vocabulary)), byte_level_(byte_level), where_(file.path + ": model") {
  const nlohmann::json& model = file.root["model"];
  const std::string kind = model.contains("type") ? string_field(model, "type", where_) : "BPE";
  if (kind != "BPE") unknown_kind(kind, where_, "BPE");
  if (model.contains("dropout") && !model["dropout"].is_null() && model["dropout"] != 0)
    throw FileError("{}: \"dropout\" makes ids random and is not supported", where_);
  byte_fallback_ = bool_field(model, "byte_fallback", where_, false);
  fuse_unk_ = bool_field(model, "fuse_unk", where_, false);
  ignore_merges_ = bool_field(model, "ignore_merges", where_, false);
  if (model.contains("unk_token") && !model["unk_token"].is_null())
    unk_token_ = string_field(model, "unk_token", where_);
  prefix_ = optional_text(model, "continuing_subword_prefix", where_);
  suffix_ = optional_text(model, "end_of_word_suffix", where_);
  cuts_ = prefix_.empty() && suffix_.empty();

  page_of_.assign(0x1100, 0);
  pages_.assign(256, kNoId);
  for (int b = 0; b < 256; ++b) {
    const auto at = static_cast<std::size_t>(b);
    byte_ids_[at] = vocabulary_.find(fmt::format("<0x{:02X}>", b));
    alphabet_ids_[at] = vocabulary_.find(ByteAlphabet::get().character(static_cast<unsigned char>(b)));
  }
  for (std::int32_t id = 0; id < vocabulary_.id_limit(); ++id) {
    const std::string_view token = vocabulary_.token(id);
    std::size_t end = 0;
    if (token.empty() || token.size() > 4) continue;
    const char32_t c = unicode::decode(token, end);
    if (end == token.size()) set_character(c, id);
  }

  joined_.assign(kJoinedBits / 64, 0);
  merges_.reserve(file.merges.size());
  std::string joined;
  for (int64 rank = 0; rank < file.merges.size(); ++rank) {
    const std::string_view left = file.merges.left(rank), right = file.merges.right(rank);
    const auto find = [&](std::string_view token) {
      const std::int32_t id = vocabulary_.find(token);
      if (id == kNoId)
        throw FileError("{}.merges[{}] (\"{}\" and \"{}\"): \"{}\" is not in the vocabulary", where_, rank,
                        printable(left), printable(right), printable(token));
      return id;
    };
    const std::int32_t left_id = find(left), right_id = find(right);
    if (right.size() < prefix_.size())
      throw FileError("{}.merges[{}]: \"{}\" is shorter than the continuing_subword_prefix", where_, rank,
                      printable(right));
    joined = left;
    joined += right.substr(prefix_.size());
    merges_.add(left_id, right_id, static_cast<std::uint32_t>(rank), find(joined));
    if (left.empty() || right.empty()) continue;
    std::size_t last = unicode::previous(left, left.size()), first = 0;
    char32_t before = unicode::decode(left, last), behind = unicode::decode(right, first);
    if (byte_level_) {
      const int a = ByteAlphabet::get().byte(before), b = ByteAlphabet::get().byte(behind);
      if (a < 0 || b < 0) continue;  // never part of a piece
      before = static_cast<char32_t>(a);
      behind = static_cast<char32_t>(b);
    }
    const std::size_t bit = joined_bit(before, behind);
    joined_[bit / 64] |= std::uint64_t{1} << bit % 64;
  }
}

void BpeModel::set_character(char32_t c, std::int32_t id) {
  std::uint16_t& page = page_of_[c >> 8];
  if (page == 0) {
    page = static_cast<std::uint16_t>(pages_.size() / 256);
    pages_.resize(pages_.size() + 256, kNoId);
  }
  pages_[page * 256u + (c & 255u)] = id;
}

std::int32_t BpeModel::character_id(char32_t c) const { return pages_[page_of_[c >> 8] * 256u + (c & 255u)]; }

std::int32_t BpeModel::unk_id() const {
  const std::int32_t id = vocabulary_.find(*unk_token_);
  if (id == kNoId)
    throw FileError("{}: the text needs \"unk_token\" \"{}\", which is not in the vocabulary", where_,
                    printable(*unk_token_));
  return id;
}

void BpeModel::encode(std::string_view piece, std::size_t readable, BpeWorkspace& work, IdBuffer& out) const {
  using Entry = BpeWorkspace::Entry;
  if (piece.size() > Entry::kMostBytes) return encode_uncached(piece, work, out);
  std::array<std::uint64_t, 4> key{};
  std::memcpy(key.data(), piece.data(), readable >= 32 ? 32 : piece.size());
  for (std::size_t i = 0; i < 4; ++i) key[i] &= kMasks.keep[piece.size()][i];
  key[3] |= kMasks.tag[piece.size()];
  constexpr std::uint64_t kA = 0x9E3779B97F4A7C15u, kB = 0xD6E8FEB86659FD93u;
  const std::uint64_t hash = mix(key[0] ^ kA, key[1] ^ kB) ^ mix(key[2] ^ kB, key[3] ^ kA);
  Entry* const pair = &work.cache_[hash % BpeWorkspace::kEntries & ~std::size_t{1}];
  const auto holds = [&key](const Entry& entry) {
    std::uint64_t differs = 0;
    for (std::size_t i = 0; i < 4; ++i) differs |= entry.key[i] ^ key[i];
    return differs == 0;
  };
  if (!holds(pair[0]) && holds(pair[1])) std::swap(pair[0], pair[1]);
  if (holds(pair[0])) {
    std::memcpy(out.room(Entry::kMostIds), pair[0].ids.data(), sizeof pair[0].ids);
    out.advance(static_cast<std::size_t>(pair[0].count));
    return;
  }
  const std::size_t before = out.size();
  encode_uncached(piece, work, out);
  const std::size_t count = out.size() - before;
  if (count > Entry::kMostIds) return;
  pair[1] = pair[0];
  pair[0].key = key;
  pair[0].count = static_cast<std::int32_t>(count);
  std::copy_n(out.data() + before, count, pair[0].ids.begin());
}

std::int32_t BpeModel::whole_token(std::string_view piece, std::string& storage) const {
  if (!byte_level_) return vocabulary_.find(piece);
  storage.clear();
  ByteAlphabet::get().append(piece, storage);
  return vocabulary_.find(storage);
}

void BpeModel::encode_uncached(std::string_view piece, BpeWorkspace& work, IdBuffer& out) const {
  if (ignore_merges_) {
    const std::int32_t id = whole_token(piece, work.text_);
    if (id != kNoId) return out.push_back(id);
  }
  if (!cuts_ || piece.size() <= kCutBeyond) return encode_part(piece, work, out);
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t end = next_part(piece, at);
    const std::string_view part = piece.substr(at, end - at);
    // With ignore_merges the cache holds whole pieces, which a part of a piece isn't.
    if (ignore_merges_ || part.size() == piece.size())
      encode_part(part, work, out);
    else
      encode(part, piece.size() - at, work, out);
    at = end;
  }
}

// End of the part of a piece that starts at `at`: behind it no merge joins the neighbours, whatever stands around them.
std::size_t BpeModel::next_part(std::string_view piece, std::size_t at) const {
  const auto joined = [&](char32_t left, char32_t right) {
    const std::size_t bit = joined_bit(left, right);
    return (joined_[bit / 64] >> bit % 64 & 1u) != 0;
  };
  if (byte_level_) {
    for (std::size_t end = at + 1; end < piece.size(); ++end) {
      const auto left = static_cast<unsigned char>(piece[end - 1]), right = static_cast<unsigned char>(piece[end]);
      if (!joined(left, right) && alphabet_ids_[left] != kNoId && alphabet_ids_[right] != kNoId) return end;
    }
    return piece.size();
  }
  std::size_t end = at;
  char32_t left = unicode::decode(piece, end);
  for (std::size_t next = end; end < piece.size(); end = next) {
    const char32_t right = unicode::decode(piece, next);
    // Characters without a token become bytes or unk, and a run of unk may be one: no cut beside them.
    if (!joined(left, right) && character_id(left) != kNoId && character_id(right) != kNoId) return end;
    left = right;
  }
  return piece.size();
}

void BpeModel::encode_part(std::string_view part, BpeWorkspace& work, IdBuffer& out) const {
  auto& symbols = work.symbols_;
  symbols.clear();
  symbolize(part, symbols);
  merges_.merge(symbols, work.scratch_);
  out.append(symbols);
}

void BpeModel::symbolize(std::string_view part, std::vector<std::int32_t>& symbols) const {
  bool unk_open = false;  // an unk not yet written: bytes of byte_fallback go before it, as in the package
  const bool plain = prefix_.empty() && suffix_.empty();
  std::string text;
  for (std::size_t at = 0; at < part.size();) {
    const std::size_t start = at;
    std::int32_t id;
    if (byte_level_) {
      id = alphabet_ids_[static_cast<unsigned char>(part[at++])];
    } else {
      id = character_id(unicode::decode(part, at));
    }
    if (!plain || id == kNoId) {
      const std::string_view character = byte_level_
                                             ? ByteAlphabet::get().character(static_cast<unsigned char>(part[start]))
                                             : part.substr(start, at - start);
      text = start > 0 ? prefix_ : "";
      text += character;
      if (at == part.size()) text += suffix_;
      if (!plain) id = vocabulary_.find(text);
    }
    if (id != kNoId) {
      if (unk_open) symbols.push_back(unk_id());
      unk_open = false;
      symbols.push_back(id);
      continue;
    }
    if (byte_fallback_) {
      bool all = true;
      for (const char byte : text) all &= byte_ids_[static_cast<unsigned char>(byte)] != kNoId;
      if (all) {
        for (const char byte : text) symbols.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
        continue;
      }
    }
    if (!unk_token_) continue;  // dropped, as in the package
    const std::int32_t unk = unk_id();
    if (unk_open && !fuse_unk_) symbols.push_back(unk);
    unk_open = true;
  }
  if (unk_open) symbols.push_back(unk_id());
}

}  // namespace megatoken
