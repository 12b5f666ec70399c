// Byte-pair encoding of one piece of text.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/id_buffer.h"
#include "text/merge_table.h"
#include "text/tokenizer_file.h"
#include "text/vocabulary.h"

namespace megatoken {

// What one thread needs while it encodes: the cache of pieces and the merge loop's arrays. Kept between calls.
class BpeWorkspace {
 public:
  BpeWorkspace();

 private:
  friend class BpeModel;
  // A cache line: the piece and its ids. A key's last byte is the piece's length, so an unused entry matches nothing.
  struct alignas(64) Entry {
    static constexpr std::size_t kMostBytes = 31, kMostIds = 7;
    std::array<std::uint64_t, 4> key;
    std::array<std::int32_t, kMostIds> ids;
    std::int32_t count;
  };
  // 4 MiB: a book has some 20,000 different pieces. A piece has two places side by side, the one used last first.
  static constexpr std::size_t kEntries = 1 << 16;

  struct Free {
    void operator()(Entry* p) const;
  };
  std::unique_ptr<Entry[], Free> cache_;
  MergeScratch scratch_;
  std::vector<std::int32_t> symbols_;
  std::string text_;
};

class BpeModel {
 public:
  // `model` of tokenizer.json with its vocabulary and merges. byte_level: pieces are bytes, each standing for a
  // character of ByteAlphabet. FileError for kinds other than BPE, dropout, merges that don't match the vocabulary,
  // wrong types.
  BpeModel(TokenizerFile& file, bool byte_level);

  const Vocabulary& vocabulary() const { return vocabulary_; }

  // Appends the ids of a piece. readable: bytes from the piece's start on that may be read (at least its size).
  void encode(std::string_view piece, std::size_t readable, BpeWorkspace& work, IdBuffer& out) const;

 private:
  struct Symbols;
  void encode_uncached(std::string_view piece, BpeWorkspace& work, IdBuffer& out) const;
  void encode_part(std::string_view part, BpeWorkspace& work, IdBuffer& out) const;
  void symbolize(std::string_view part, std::vector<std::int32_t>& symbols) const;
  std::int32_t whole_token(std::string_view piece, std::string& storage) const;
  std::size_t next_part(std::string_view piece, std::size_t at) const;
  std::int32_t character_id(char32_t c) const;
  void set_character(char32_t c, std::int32_t id);
  std::int32_t unk_id() const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  bool byte_level_, byte_fallback_ = false, fuse_unk_ = false, ignore_merges_ = false, cuts_ = false;
  std::optional<std::string> unk_token_;
  std::string prefix_, suffix_;  // continuing_subword_prefix, end_of_word_suffix
  std::string where_;
  std::array<std::int32_t, 256> byte_ids_{};      // "<0x..>" tokens of byte_fallback
  std::array<std::int32_t, 256> alphabet_ids_{};  // byte_level: the token of each byte's character
  std::vector<std::int32_t> pages_;               // characters' own tokens: pages of 256
  std::vector<std::uint16_t> page_of_;
  std::vector<std::uint64_t> joined_;  // bit of a pair of neighbours that some merge joins (others may share the bit)
};

}  // namespace megatoken
