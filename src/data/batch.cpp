#include "data/batch.h"

#include <algorithm>

namespace megatoken {

std::vector<int64> MicroBatch::lengths() const {
  std::vector<int64> lengths;
  lengths.reserve(documents.size());
  for (const Document& document : documents) lengths.push_back(document.length);
  return lengths;
}

void fill_micro_batch(const PreparedDataset& dataset, std::span<const int64> rows, MicroBatch& batch) {
  batch.documents.clear();
  int64 tokens = 0;
  for (const int64 row : rows) {
    const int64 length = dataset.length(row);
    batch.documents.push_back({row, tokens, length});
    tokens += length;
  }
  batch.ids.resize(static_cast<std::size_t>(tokens));
  batch.targets.resize(static_cast<std::size_t>(tokens));
  for (const Document& document : batch.documents) {
    const auto start = static_cast<std::size_t>(document.start), length = static_cast<std::size_t>(document.length);
    const auto ids = dataset.ids(document.row);
    std::copy(ids.begin(), ids.end(), batch.ids.begin() + document.start);
    dataset.copy_targets(document.row, std::span(batch.targets).subspan(start, length));
  }
  batch.target_count = tokens - std::count(batch.targets.begin(), batch.targets.end(), kNoLabel);
}

}  // namespace megatoken
