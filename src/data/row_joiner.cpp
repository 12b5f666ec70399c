#include "data/row_joiner.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace megatoken {

RowJoiner::RowJoiner(int64 length, Sink sink) : length_(static_cast<std::size_t>(length)), sink_(std::move(sink)) {
  check(length > 0, "rows of {} tokens", length);
}

bool RowJoiner::append(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels) {
  check(ids.size() == labels.size(), "{} labels for {} ids", labels.size(), ids.size());
  const bool cut = ids.size() > length_ - ids_.size();
  while (!ids.empty()) {
    const std::size_t count = std::min(ids.size(), length_ - ids_.size());
    ids_.insert(ids_.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
    labels_.insert(labels_.end(), labels.begin(), labels.begin() + static_cast<std::ptrdiff_t>(count));
    ids = ids.subspan(count);
    labels = labels.subspan(count);
    if (ids_.size() == length_) hand_out();
  }
  return cut;
}

void RowJoiner::finish() {
  if (!ids_.empty()) hand_out();
}

void RowJoiner::hand_out() {
  sink_(ids_, labels_);
  ids_.clear();
  labels_.clear();
}

}  // namespace megatoken
