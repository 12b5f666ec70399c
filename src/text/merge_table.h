// The merges of a BPE model and the loop that applies them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "text/hash.h"

namespace megatoken {

// Arrays of the merge loop for long pieces; kept between calls.
struct MergeScratch {
  struct Node {
    std::int32_t id;
    std::uint32_t previous, next, rank;  // rank of the merge with the next node
  };
  std::vector<Node> nodes;
  std::vector<std::uint64_t> heap;  // rank << 32 | position
  // Gives back what an extraordinarily long piece needed.
  void trim();
};

class MergeTable {
 public:
  static constexpr std::uint32_t kNoRank = 0xFFFFFFFFu;

  // Room for count merges.
  void reserve(int64 count);
  // rank grows from call to call; a pair that stands twice has its last rank, as in the package.
  void add(std::int32_t left, std::int32_t right, std::uint32_t rank, std::int32_t result);

  std::uint32_t rank(std::int32_t left, std::int32_t right) const {
    for (std::size_t at = slot(left, right);; at = next(at)) {
      const Slot& s = slots_[at];
      if (s.left == left && s.right == right) return s.rank;
      if (s.left < 0) return kNoRank;
    }
  }

  // Replaces the symbols by what is left when the merges are applied: always the lowest rank, of those the leftmost.
  // O(n log n) time, 16 bytes of scratch a symbol and 8 a candidate.
  void merge(std::vector<std::int32_t>& symbols, MergeScratch& scratch) const;

 private:
  struct Slot {
    std::int32_t left, right;
    std::uint32_t rank;
  };
  std::size_t slot(std::int32_t left, std::int32_t right) const {
    return slot_of(hash_pair(static_cast<std::uint32_t>(left), static_cast<std::uint32_t>(right)), slots_.size());
  }
  std::size_t next(std::size_t at) const { return at + 1 == slots_.size() ? 0 : at + 1; }
  void merge_short(std::vector<std::int32_t>& symbols) const;
  void merge_long(std::vector<std::int32_t>& symbols, MergeScratch& scratch) const;

  std::vector<Slot> slots_{Slot{-1, -1, 0}};
  std::vector<std::int32_t> results_;  // by rank
};

}  // namespace megatoken
