// Rows of bytes at a stride: what a view touches. Exact intersection, so that disjoint columns or rows never collide.
#pragma once

#include "base/dtype.h"
#include "tensor/view.h"

namespace megatoken {

struct StridedBytes {
  int64 begin = 0;   // of the first row
  int64 width = 0;   // bytes a row, > 0
  int64 stride = 0;  // between rows; >= width when rows > 1
  int64 rows = 0;    // > 0

  int64 end() const { return begin + (rows - 1) * stride + width; }
};

// The bytes of a view that is not empty, its first element lying at `begin`. Contiguous rows become one.
StridedBytes strided_bytes(const View& view, int64 begin);

// Whether any byte is in both.
bool intersect(const StridedBytes& a, const StridedBytes& b);

}  // namespace megatoken
