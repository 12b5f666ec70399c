// Which tokens of a micro-batch a rank of the context-parallel group holds, and where.
//
// A document of L tokens is cut into 2*cp chunks of ceil(L / (2 cp)) tokens (the last ones may be short or empty). Rank r
// holds chunk r of every document in its first half and chunk 2*cp-1-r in its second, so that causal attention costs
// every rank the same. With cp = 1 there is one half and no cut.
//
// A rank's rows: half 0 (chunks in document order), padding up to slot(0) rows, half 1, padding up to slot(1) rows. The
// slots are equal on all ranks, so rows() and every collective have the same size everywhere. Padding rows carry token 0,
// position 0, no target and zero attention output: they change nothing.
//
// Gathered rows (keys of all ranks): half 0 of ranks 0..cp-1, then half 1 of ranks 0..cp-1, each slot(h) rows. Chunks
// 0..cp-1 of a single document are then contiguous and in order.
#pragma once

#include <vector>

#include "base/dtype.h"

namespace megatoken {

// A run of consecutive tokens of one document held by one rank in consecutive rows.
struct Segment {
  int64 document = 0;
  int64 first_position = 0;  // inside the document
  int64 length = 0;          // > 0
  int64 row = 0;             // local row of the first token
  int64 gathered_row = 0;    // row of the first token among all ranks' rows
};

class TokenLayout {
 public:
  // document_lengths: tokens of each document of the micro-batch, each >= 0. cp >= 1.
  TokenLayout(std::vector<int64> document_lengths, int64 cp);

  int64 cp() const { return cp_; }
  int64 halves() const { return cp_ == 1 ? 1 : 2; }
  int64 slot(int64 half) const { return slots_[static_cast<std::size_t>(half)]; }
  int64 rows() const { return slots_[0] + slots_[1]; }  // of each rank, padding included
  int64 gathered_rows() const { return cp_ * rows(); }
  int64 half_begin(int64 half) const { return half == 0 ? 0 : slots_[0]; }
  int64 gathered_half_begin(int64 half) const { return half == 0 ? 0 : cp_ * slots_[0]; }
  const std::vector<int64>& document_lengths() const { return lengths_; }

  // Segments of a rank in row order.
  const std::vector<Segment>& segments(int64 rank) const { return segments_[static_cast<std::size_t>(rank)]; }
  // Segments of all ranks that hold tokens of a document, by first_position.
  std::vector<Segment> document_segments(int64 document) const;
  // [first, count) runs of padding rows of a rank.
  struct RowRange {
    int64 first;
    int64 count;
  };
  std::vector<RowRange> padding(int64 rank) const;

 private:
  std::vector<int64> lengths_;
  int64 cp_;
  int64 slots_[2] = {0, 0};
  std::vector<std::vector<Segment>> segments_;
};

}  // namespace megatoken
