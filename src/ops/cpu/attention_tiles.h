// What the forward and backward attention kernels share: tile sizes and how tiles come from memory.
#pragma once

#include <cstring>

#include "ops/attention_block.h"
#include "ops/cpu/elements.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/vector.h"

namespace megatoken {

// Multiples of kLanes. One score tile (64 KiB) stays in the second-level cache with the operands.
inline constexpr int64 kQueryTile = 128;
inline constexpr int64 kKeyTile = 128;
// Where the diagonal of a causal block crosses a tile, it is taken in strips of so many rows or columns.
inline constexpr int64 kDiagonalStep = 32;
inline constexpr float kLog2E = 1.44269504088896341f;
inline constexpr float kLn2 = 0.693147180559945309f;

inline int64 padded(int64 n) { return ceil_div(n, kLanes) * kLanes; }

// Rows [first, first + rows) and one head's columns of x as float32 [rows][stride], columns beyond head_dim zero.
template <typename T>
void load_tile(const View& x, int64 first, int64 rows, int64 head, int64 head_dim, float* out, int64 stride) {
  for (int64 i = 0; i < rows; ++i) {
    const T* from = x.row<const T>(first + i) + head * head_dim;
    float* to = out + i * stride;
    if constexpr (std::is_same_v<T, float>)
      std::memcpy(to, from, static_cast<std::size_t>(head_dim) * sizeof(float));
    else
      for (int64 j = 0; j < head_dim; ++j) to[j] = to_float(from[j]);
    for (int64 j = head_dim; j < stride; ++j) to[j] = 0.0f;
  }
}

// The same transposed and multiplied: out[d][i] = factor * x[first + i][d], [head_dim][stride], rows beyond `rows`
// zero.
template <typename T>
void load_transposed(const View& x, int64 first, int64 rows, int64 head, int64 head_dim, float factor, float* out,
                     int64 stride) {
  transpose(x.row<const T>(first) + head * head_dim, x.row_stride, rows, head_dim, out, stride);
  for (int64 d = 0; d < head_dim; ++d)
    for (int64 i = 0; i < rows; ++i) out[d * stride + i] *= factor;
  for (int64 d = 0; d < head_dim; ++d)
    for (int64 i = rows; i < stride; ++i) out[d * stride + i] = 0.0f;
}

// Brings rows of several tiles into the second-level cache, a few lines at a time. Rows of a head are short and far
// apart, which the processor does not foresee.
class TilePrefetch {
 public:
  // The same rows and columns load_tile takes. At most kTiles, fetched in this order.
  void add(const View& x, int64 first, int64 rows, int64 head, int64 head_dim) {
    const int64 element = size_of(x.dtype);
    tiles_[count_++] = {x.data + (first * x.row_stride + head * head_dim) * element, x.row_stride * element,
                        head_dim * element, rows};
  }
  void operator()() {
    for (int line = 0; line < kLines && at_ < count_; ++line) {
      Tile& tile = tiles_[at_];
      __builtin_prefetch(tile.row + offset_, 0, 2);
      offset_ += kLine;
      if (offset_ < tile.bytes) continue;
      offset_ = 0;
      tile.row += tile.stride;
      if (--tile.rows == 0) ++at_;
    }
  }

 private:
  struct Tile {
    const std::byte* row;
    int64 stride;
    int64 bytes;
    int64 rows;
  };
  static constexpr int kTiles = 3;
  static constexpr int kLines = 12;  // as many as a core keeps under way at once
  static constexpr int64 kLine = 64;
  Tile tiles_[kTiles];
  int count_ = 0;
  int at_ = 0;
  int64 offset_ = 0;
};

// The keys that query i of a block sees: those before visible_keys(i).
template <typename Op>
int64 visible_keys(const Op& op, int64 query) {
  return op.mask == AttentionMask::full ? op.k.rows : query + 1 + (op.k.rows - op.q.rows);
}

}  // namespace megatoken
