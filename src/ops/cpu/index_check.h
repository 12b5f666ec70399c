// Indices that come with the data are checked before anything is written.
#pragma once

#include <string_view>

#include "base/error.h"
#include "tensor/view.h"

namespace megatoken {

// Every element of an i32 view lies in [0, bound).
inline void check_indices(std::string_view op, const View& index, int64 bound) {
  for (int64 i = 0; i < index.rows; ++i)
    for (int64 j = 0; j < index.cols; ++j) {
      const std::int32_t value = index.row<const std::int32_t>(i)[j];
      check(value >= 0 && value < bound, "{}: index {} at row {} is not in [0, {})", op, value, i, bound);
    }
}

}  // namespace megatoken
