// The model's vocabulary: token strings and their ids, one to one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace megatoken {

constexpr std::int32_t kNoId = -1;

class Vocabulary {
 public:
  // Ids lie in [0, kIdLimit): larger ones than any vocabulary's are taken for damage.
  static constexpr int64 kIdLimit = int64{1} << 24;

  // Adds a token in the file's order. Call build() after the last.
  void add(std::string_view token, int64 id);
  // Makes the tables. FileError naming `where` (the file and the key) for an id out of range, an id of two tokens or a
  // token that stands twice.
  void build(const std::string& where);

  std::int32_t find(std::string_view token) const;  // kNoId when absent
  std::string_view token(std::int32_t id) const;    // empty when no token has the id
  bool contains(std::int32_t id) const { return id >= 0 && id < id_limit() && index_[id] != kNone; }
  int64 size() const { return static_cast<int64>(ids_.size()); }
  int64 id_limit() const { return static_cast<int64>(index_.size()); }  // 1 + the largest id

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
  std::string_view entry(std::uint32_t i) const {
    return std::string_view(text_).substr(starts_[i], starts_[i + 1] - starts_[i]);
  }
  std::size_t next(std::size_t slot) const { return slot + 1 == slots_.size() ? 0 : slot + 1; }

  std::string text_;
  std::vector<std::uint32_t> starts_{0};
  std::vector<std::int32_t> ids_;     // by entry
  std::vector<std::uint32_t> index_;  // by id: the entry
  std::vector<std::uint32_t> slots_;  // by hash: the entry
  int64 bad_id_ = 0;
  std::uint32_t bad_entry_ = kNone;
};

}  // namespace megatoken
