// Host side of the kernels: grids, rows of views, dispatch on storage types.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/storage.h"
#include "tensor/view.h"

namespace megatoken::cuda {

inline bool aligned16(const View& v) {
  return reinterpret_cast<std::uintptr_t>(v.data) % 16 == 0 && (v.rows <= 1 || v.row_stride * size_of(v.dtype) % 16 == 0);
}

// T is float or Bf16, const or not, and must be what the view holds.
template <typename T>
Rows<T> rows_of(const View& v) {
  return {reinterpret_cast<T*>(v.data), v.row_stride, aligned16(v)};
}

// Calls f with a value of the kernels' type of a dtype that is float32 or bf16.
template <typename F>
void with_float_type(DType dtype, const F& f) {
  if (dtype == DType::f32) {
    f(float{});
  } else {
    check(dtype == DType::bf16, "{} where float32 or bfloat16 was expected", name_of(dtype));
    f(Bf16{});
  }
}

inline unsigned power_of_2_from(int64 n, unsigned least, unsigned most) {
  unsigned p = least;
  while (p < most && p < n) p *= 2;
  return p;
}

inline unsigned grid_size(int64 blocks) {
  check(blocks <= 0x7FFFFFFF, "a grid of {} blocks", blocks);
  return static_cast<unsigned>(blocks);
}

// A matrix cut into tiles of (rows, packs of eight columns), one thread a pack, 256 threads a block.
struct Tiles {
  Tiles(int64 num_rows, int64 num_cols) : rows(num_rows), cols(num_cols) {
    const int64 packs = ceil_div(cols, kPack);
    block.x = power_of_2_from(packs, 1, 256);
    block.y = 256 / block.x;
    across = ceil_div(packs, block.x);
    grid = grid_size(ceil_div(rows, block.y) * across);
  }
  int64 rows, cols;
  int64 across = 1;  // tiles in a row of tiles
  dim3 block;
  unsigned grid = 0;
};

}  // namespace megatoken::cuda
