// Products of small float32 matrices that already lie in the cache, for attention's tiles: no packing, no threads.
//
// The kernel keeps a block of c, kTileRows x kTileVectors vectors, in registers; per step of k it reads one row of b as
// vectors and broadcasts kTileRows elements of a. 6 x 4 vectors take 24 + 4 + 1 of 32 registers, 6 x 2 take 12 + 2 + 1
// of 16; either needs fewer loads than the two a cycle that would hold the multipliers back.
#pragma once

#include <utility>

#include "ops/cpu/vector.h"

namespace megatoken {

inline constexpr int kTileRows = 6;
inline constexpr int kTileVectors = kVectorRegisters >= 32 ? 4 : 2;

// Where element (i, k) of a lies: [i * stride + k], or [k * stride + i] when transposed.
template <bool kTransposed>
struct TileA {
  const float* data;
  int64 stride;
};

// f(0), ..., f(kCount - 1) with constants, written out: arrays indexed by them become registers.
template <int kCount, typename F>
[[gnu::always_inline]] inline void unrolled(const F& f) {
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) __attribute__((always_inline)) {
    (f(std::integral_constant<int, kIndex>()), ...);
  }
  (std::make_integer_sequence<int, kCount>());
}

template <int kRows, int kVectors, bool kTransposed, bool kAdd>
void tile_block(int64 k, TileA<kTransposed> a, const float* b, int64 b_stride, float* c, int64 c_stride) {
  Vec sum[kRows][kVectors];
  unrolled<kRows>([&](auto i) __attribute__((always_inline)) {
    unrolled<kVectors>([&](auto j) __attribute__((always_inline)) {
      sum[i][j] = kAdd ? load(c + i * c_stride + j * kLanes) : Vec{};
    });
  });
  for (int64 p = 0; p < k; ++p) {
    Vec row[kVectors];
    unrolled<kVectors>([&](auto j) __attribute__((always_inline)) { row[j] = load(b + p * b_stride + j * kLanes); });
    unrolled<kRows>([&](auto i) __attribute__((always_inline)) {
      const float element = kTransposed ? a.data[p * a.stride + i] : a.data[i * a.stride + p];
      unrolled<kVectors>([&](auto j) __attribute__((always_inline)) { sum[i][j] += element * row[j]; });
    });
  }
  unrolled<kRows>([&](auto i) __attribute__((always_inline)) {
    unrolled<kVectors>([&](auto j) __attribute__((always_inline)) { store(c + i * c_stride + j * kLanes, sum[i][j]); });
  });
}

template <int kVectors, bool kTransposed, bool kAdd, typename Between>
void tile_columns(int64 m, int64 k, TileA<kTransposed> a, const float* b, int64 b_stride, float* c, int64 c_stride,
                  Between& between) {
  const int64 step = kTransposed ? 1 : a.stride;
  int64 i = 0;
  for (; i + kTileRows <= m; i += kTileRows) {
    tile_block<kTileRows, kVectors, kTransposed, kAdd>(k, {a.data + i * step, a.stride}, b, b_stride, c + i * c_stride,
                                                       c_stride);
    between();
  }
  const auto rest = [&]<int kRows>() {
    tile_block<kRows, kVectors, kTransposed, kAdd>(k, {a.data + i * step, a.stride}, b, b_stride, c + i * c_stride,
                                                   c_stride);
  };
  switch (m - i) {
    case 1:
      return rest.template operator()<1>();
    case 2:
      return rest.template operator()<2>();
    case 3:
      return rest.template operator()<3>();
    case 4:
      return rest.template operator()<4>();
    case 5:
      return rest.template operator()<5>();
    default:
      return;
  }
}

// c = a b, or c += a b with kAdd. a is m x k; b is k x n and c m x n, row-major, n a multiple of kLanes. Each element
// of c is one chain of sums in the order of k, whatever m and n are. between() is called after each block of registers:
// some hundred cycles of arithmetic under which to fetch what comes next.
template <bool kAdd, bool kTransposed, typename Between>
void tile_product(int64 m, int64 n, int64 k, TileA<kTransposed> a, const float* b, int64 b_stride, float* c,
                  int64 c_stride, Between& between) {
  constexpr int64 kColumns = kTileVectors * kLanes;
  int64 j = 0;
  for (; j + kColumns <= n; j += kColumns)
    tile_columns<kTileVectors, kTransposed, kAdd>(m, k, a, b + j, b_stride, c + j, c_stride, between);
  for (; j < n; j += kLanes) tile_columns<1, kTransposed, kAdd>(m, k, a, b + j, b_stride, c + j, c_stride, between);
}

template <bool kAdd, bool kTransposed>
void tile_product(int64 m, int64 n, int64 k, TileA<kTransposed> a, const float* b, int64 b_stride, float* c,
                  int64 c_stride) {
  const auto nothing = [] {};
  tile_product<kAdd>(m, n, k, a, b, b_stride, c, c_stride, nothing);
}

}  // namespace megatoken
