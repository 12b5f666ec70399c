// Ids being written: a vector that grows without a check for every id.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace megatoken {

class IdBuffer {
 public:
  explicit IdBuffer(std::size_t expected) : ids_(expected) {}

  std::size_t size() const { return size_; }
  const std::int32_t* data() const { return ids_.data(); }
  // Where the next ids go: room for count of them. Call advance() with how many were written.
  std::int32_t* room(std::size_t count) {
    if (ids_.size() - size_ < count) [[unlikely]]
      ids_.resize(std::max(ids_.size() + ids_.size() / 2, size_ + count));
    return ids_.data() + size_;
  }
  void advance(std::size_t count) { size_ += count; }
  void clear() { size_ = 0; }

  void push_back(std::int32_t id) {
    *room(1) = id;
    advance(1);
  }
  void append(const std::vector<std::int32_t>& ids) {
    std::copy(ids.begin(), ids.end(), room(ids.size()));
    advance(ids.size());
  }
  std::vector<std::int32_t> take() {
    ids_.resize(size_);
    return std::move(ids_);
  }

 private:
  std::vector<std::int32_t> ids_;
  std::size_t size_ = 0;
};

}  // namespace megatoken
