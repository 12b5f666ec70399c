// Rows of token ids with their labels, ready for batching.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/dtype.h"

namespace megatoken {

// The label of a token that isn't trained on (torch's ignore_index).
inline constexpr std::int32_t kNoLabel = -100;

// Values kept in blocks that never move: appending gigabytes copies nothing twice, and a span stays valid.
template <typename T>
class BlockArena {
 public:
  // Uninitialised room for count values, in one piece.
  T* grow(int64 count) {
    if (count > left_) {
      const int64 size = count > kBlock / 4 ? count : kBlock;
      blocks_.push_back(std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(size)));
      // A long row has a block of its own; the block being filled stays in use.
      if (size == count) return blocks_.back().get();
      next_ = blocks_.back().get();
      left_ = size;
    }
    T* room = next_;
    next_ += count;
    left_ -= count;
    return room;
  }

 private:
  static constexpr int64 kBlock = (int64{1} << 20) / static_cast<int64>(sizeof(T));
  std::vector<std::unique_ptr<T[]>> blocks_;
  T* next_ = nullptr;
  int64 left_ = 0;
};

// Ids take 4 bytes a token; labels take nothing where they are the ids themselves from some token on, a bit a token
// where they are the ids or kNoLabel, 4 bytes otherwise. Built by one thread, then read by any number.
class PreparedDataset {
 public:
  int64 rows() const { return static_cast<int64>(rows_.size()); }
  int64 tokens() const { return tokens_; }
  int64 targets() const { return targets_; }  // of all rows
  int64 longest() const { return longest_; }

  int64 length(int64 row) const { return at(row).length; }
  std::span<const std::int32_t> ids(int64 row) const { return {at(row).ids, static_cast<std::size_t>(length(row))}; }
  // The unshifted label of token i of a row: the id that the token before it is to predict, or kNoLabel.
  std::int32_t label(int64 row, int64 i) const;
  // The token from which on labels are the ids, where none before it has one; none: labels of another form.
  std::optional<int64> first_label(int64 row) const;
  // out[length(row)]: what each token predicts, which is the next token's label; kNoLabel for the last.
  void copy_targets(int64 row, std::span<std::int32_t> out) const;

  // Adds a row whose labels are its ids from token first_label on, and kNoLabel before.
  void add(std::span<const std::int32_t> ids, int64 first_label = 0);
  // Adds a row with any labels; labels.size() == ids.size().
  void add(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels);

  // Of ids and labels of all rows in order: tells whether a run is resumed on the data it began with.
  std::uint64_t fingerprint() const;

 private:
  enum class Labels : std::uint8_t { ids_from, bits, values };
  struct Row {
    const std::int32_t* ids;
    int64 length;
    int64 first_label;           // ids_from
    const std::uint64_t* bits;   // bits: bit i is set where label i is id i
    const std::int32_t* values;  // values
    Labels labels;
  };
  const Row& at(int64 row) const;
  void append(Row row, std::span<const std::int32_t> ids, int64 targets);

  std::vector<Row> rows_;
  BlockArena<std::int32_t> values_;
  BlockArena<std::uint64_t> bits_;
  int64 tokens_ = 0, targets_ = 0, longest_ = 0;
};

// How many targets a row has: labels other than kNoLabel, the first token's aside, which nothing predicts.
int64 count_targets(std::span<const std::int32_t> labels);

}  // namespace megatoken
