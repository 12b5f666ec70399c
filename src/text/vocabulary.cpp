#include "text/vocabulary.h"

#include <algorithm>

#include "base/error.h"
#include "io/file.h"
#include "text/hash.h"

namespace megatoken {

void Vocabulary::add(std::string_view token, int64 id) {
  if ((id < 0 || id >= kIdLimit) && bad_entry_ == kNone) {
    bad_entry_ = static_cast<std::uint32_t>(ids_.size());
    bad_id_ = id;
  }
  text_ += token;
  starts_.push_back(static_cast<std::uint32_t>(text_.size()));
  ids_.push_back(static_cast<std::int32_t>(std::clamp<int64>(id, 0, kIdLimit - 1)));
}

void Vocabulary::build(const std::string& where) {
  if (bad_entry_ != kNone)
    throw FileError("{}: token \"{}\" has the id {}, ids must be in [0, {})", where, printable(entry(bad_entry_)),
                    bad_id_, kIdLimit);
  const std::int32_t largest = ids_.empty() ? -1 : *std::max_element(ids_.begin(), ids_.end());
  index_.assign(static_cast<std::size_t>(largest + 1), kNone);
  slots_.assign(table_slots(ids_.size()), kNone);
  for (std::uint32_t i = 0; i < ids_.size(); ++i) {
    const std::string_view text = entry(i);
    std::size_t slot = slot_of(hash_bytes(text), slots_.size());
    for (; slots_[slot] != kNone; slot = next(slot))
      if (entry(slots_[slot]) == text) throw FileError("{}: token \"{}\" stands twice", where, printable(text));
    slots_[slot] = i;
    std::uint32_t& of_id = index_[static_cast<std::size_t>(ids_[i])];
    if (of_id != kNone)
      throw FileError("{}: tokens \"{}\" and \"{}\" have the same id {}", where, printable(entry(of_id)),
                      printable(text), ids_[i]);
    of_id = i;
  }
  text_.shrink_to_fit();
  starts_.shrink_to_fit();
  ids_.shrink_to_fit();
}

std::int32_t Vocabulary::find(std::string_view token) const {
  if (slots_.empty()) return kNoId;
  for (std::size_t slot = slot_of(hash_bytes(token), slots_.size()); slots_[slot] != kNone; slot = next(slot))
    if (entry(slots_[slot]) == token) return ids_[slots_[slot]];
  return kNoId;
}

std::string_view Vocabulary::token(std::int32_t id) const {
  return contains(id) ? entry(index_[static_cast<std::size_t>(id)]) : std::string_view();
}

}  // namespace megatoken
