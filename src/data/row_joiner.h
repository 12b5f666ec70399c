// Texts joined into rows of one length: long_rows: concatenate.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/dtype.h"

namespace megatoken {

// Lays rows one behind the other and cuts what results every `length` tokens, wherever that falls. Needs memory for one
// row of that length.
class RowJoiner {
 public:
  // Called for every row made: `length` tokens, the last perhaps fewer; labels.size() == ids.size().
  using Sink = std::function<void(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels)>;
  RowJoiner(int64 length, Sink sink);

  // labels.size() == ids.size(). Whether the row was cut: it doesn't lie in one row of the result alone.
  bool append(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels);
  // Hands out what is left.
  void finish();

 private:
  void hand_out();

  std::size_t length_;
  Sink sink_;
  std::vector<std::int32_t> ids_, labels_;
};

}  // namespace megatoken
