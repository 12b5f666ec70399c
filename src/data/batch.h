// A micro-batch as documents laid one behind the other, without padding.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "data/dataset.h"

namespace megatoken {

// Positions run from 0 to length - 1 in each document, and attention doesn't cross its ends.
struct Document {
  int64 row = 0;     // of the dataset
  int64 start = 0;   // of its first token in the micro-batch
  int64 length = 0;  // tokens
};

// The shift is done here, on whole documents, before anything is cut for ranks: targets[i] is the id that token i is to
// predict, kNoLabel where there is none, always so at a document's last token.
struct MicroBatch {
  std::vector<Document> documents;
  std::vector<std::int32_t> ids;      // [tokens]
  std::vector<std::int32_t> targets;  // [tokens]
  int64 target_count = 0;             // targets other than kNoLabel

  int64 tokens() const { return static_cast<int64>(ids.size()); }
  std::vector<int64> lengths() const;  // of the documents
};

// Fills `batch` (its memory is used again) with the rows in their order. No rows: an empty batch.
void fill_micro_batch(const PreparedDataset& dataset, std::span<const int64> rows, MicroBatch& batch);

}  // namespace megatoken
