#include "schedule/token_layout.h"

#include <algorithm>

#include "base/error.h"

namespace megatoken {

TokenLayout::TokenLayout(std::vector<int64> document_lengths, int64 cp)
    : lengths_(std::move(document_lengths)), cp_(cp), segments_(static_cast<std::size_t>(cp)) {
  check(cp >= 1, "cp {}", cp);
  const int64 chunks = cp == 1 ? 1 : 2 * cp;
  for (int64 half = 0; half < halves(); ++half) {
    std::vector<int64> used(static_cast<std::size_t>(cp), 0);
    for (std::size_t d = 0; d < lengths_.size(); ++d) {
      const int64 length = lengths_[d];
      check(length >= 0, "document {} has length {}", d, length);
      const int64 chunk_length = (length + chunks - 1) / chunks;
      for (int64 rank = 0; rank < cp; ++rank) {
        const int64 chunk = half == 0 ? rank : chunks - 1 - rank;
        const int64 begin = std::min(length, chunk * chunk_length);
        const int64 end = std::min(length, begin + chunk_length);
        if (begin == end) continue;
        auto& rows = used[static_cast<std::size_t>(rank)];
        segments_[static_cast<std::size_t>(rank)].push_back(
            {static_cast<int64>(d), begin, end - begin, half_begin(half) + rows, 0});
        rows += end - begin;
      }
    }
    slots_[half] = *std::max_element(used.begin(), used.end());
  }
  for (int64 rank = 0; rank < cp; ++rank)
    for (Segment& s : segments_[static_cast<std::size_t>(rank)]) {
      const int64 half = halves() == 2 && s.row >= half_begin(1) ? 1 : 0;
      s.gathered_row = gathered_half_begin(half) + rank * slot(half) + (s.row - half_begin(half));
    }
}

std::vector<Segment> TokenLayout::document_segments(int64 document) const {
  std::vector<Segment> found;
  for (const auto& of_rank : segments_)
    for (const Segment& s : of_rank)
      if (s.document == document) found.push_back(s);
  std::sort(found.begin(), found.end(),
            [](const Segment& a, const Segment& b) { return a.first_position < b.first_position; });
  return found;
}

std::vector<TokenLayout::RowRange> TokenLayout::padding(int64 rank) const {
  std::vector<RowRange> found;
  int64 next = 0;
  const auto close = [&](int64 end) {
    if (end > next) found.push_back({next, end - next});
    next = end;
  };
  for (const Segment& s : segments(rank)) {
    if (s.row > next) close(s.row);
    next = s.row + s.length;
  }
  close(rows());
  return found;
}

}  // namespace megatoken
