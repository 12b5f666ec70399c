// Goto and van de Geijn 2008 ("Anatomy of high-performance matrix multiplication") around the kernel of tile_product.h:
// a tile of d is summed over chunks of kDepth of k; per chunk, columns of op(b) are packed into panels that fit the
// first-level cache, and rows of op(a) are read in place, or packed too where they are bf16 or transposed.
//
// Every element of d is one chain of float32 sums in the order of k, chunk by chunk, then c: its bits depend neither on
// how d is cut into tiles nor on the number of threads nor on the rows and columns beside it.
#include "ops/cpu/elements.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/tile_product.h"
#include "ops/gemm.h"
#include "ops/op_table_cpu.h"

namespace megatoken {
namespace {

constexpr int64 kDepth = 128;
constexpr int64 kPanel = kTileVectors * kLanes;  // columns; 32 KiB of packed b with 64
constexpr int64 kLargestRows = 256;
constexpr int64 kLargestCols = 512;
constexpr int64 kSmallestTile = 64;
// Rows of packed, transposed a are read a few elements at a time, kDepth of them in turn: an odd number of cache lines
// apart, so that they do not share cache sets.
constexpr int64 kTransposedStride = kLargestRows + 16;

// d's tiles: large ones for little packing, smaller ones while there are too few to share out evenly. That the cut
// follows the threads changes no bit.
struct Tiling {
  Tiling(int64 rows_of_d, int64 cols_of_d, int threads) : m(rows_of_d), n(cols_of_d) {
    const int64 wanted = threads == 1 ? 1 : 4 * threads;
    while (count() < wanted && (rows > kSmallestTile || cols > kSmallestTile)) (rows < cols ? cols : rows) /= 2;
  }
  int64 count() const { return ceil_div(m, rows) * ceil_div(n, cols); }
  int64 m, n;
  int64 rows = kLargestRows;
  int64 cols = kLargestCols;
};

struct Range {
  int64 first;
  int64 count;
};

struct Scratch {
  Scratch() {
    float* p = thread_scratch(kLargestRows * kLargestCols + kDepth * kPanel + kDepth * kTransposedStride);
    sum = p;
    b = sum + kLargestRows * kLargestCols;
    a = b + kDepth * kPanel;
  }
  float* sum;  // [panel][rows][kPanel]
  float* b;    // [kDepth][kPanel]
  float* a;    // [rows][kDepth], or [kDepth][kTransposedStride] of a transposed a
};

// Columns `cols` of op(b), at most kPanel, at `depth` of k; zeros up to a whole vector.
template <typename T>
void pack_b(const Gemm& gemm, Range cols, Range depth, float* packed) {
  if (gemm.transpose_b) {
    transpose(gemm.b.row<const T>(cols.first) + depth.first, gemm.b.row_stride, cols.count, depth.count, packed,
              kPanel);
  } else {
    for (int64 p = 0; p < depth.count; ++p) {
      const T* from = gemm.b.row<const T>(depth.first + p) + cols.first;
      for (int64 j = 0; j < cols.count; ++j) packed[p * kPanel + j] = to_float(from[j]);
    }
  }
  for (int64 j = cols.count; j % kLanes != 0; ++j)
    for (int64 p = 0; p < depth.count; ++p) packed[p * kPanel + j] = 0.0f;
}

// Rows `rows` of op(a) at `depth` of k, as they lie in a.
template <typename T, bool kTransposed>
TileA<kTransposed> rows_of_a(const Gemm& gemm, Range rows, Range depth, float* packed) {
  const Range outer = kTransposed ? depth : rows;
  const Range inner = kTransposed ? rows : depth;
  if constexpr (std::is_same_v<T, float> && !kTransposed)
    return {gemm.a.row<const float>(outer.first) + inner.first, gemm.a.row_stride};
  constexpr int64 kStride = kTransposed ? kTransposedStride : kDepth;
  for (int64 i = 0; i < outer.count; ++i) {
    const T* from = gemm.a.row<const T>(outer.first + i) + inner.first;
    for (int64 j = 0; j < inner.count; ++j) packed[i * kStride + j] = to_float(from[j]);
  }
  return {packed, kStride};
}

template <typename In, bool kTransposed>
void sum_tile(const Gemm& gemm, Range rows, Range cols, const Scratch& scratch) {
  for (int64 first = 0; first < gemm.k(); first += kDepth) {
    const Range depth{first, std::min(kDepth, gemm.k() - first)};
    const TileA<kTransposed> a = rows_of_a<In, kTransposed>(gemm, rows, depth, scratch.a);
    for (int64 col = 0; col < cols.count; col += kPanel) {
      const Range panel{cols.first + col, std::min(kPanel, cols.count - col)};
      const int64 width = ceil_div(panel.count, kLanes) * kLanes;
      float* sum = scratch.sum + col * rows.count;
      pack_b<In>(gemm, panel, depth, scratch.b);
      if (first == 0)
        tile_product<false>(rows.count, width, depth.count, a, scratch.b, kPanel, sum, kPanel);
      else
        tile_product<true>(rows.count, width, depth.count, a, scratch.b, kPanel, sum, kPanel);
    }
  }
}

template <typename Out>
void write_tile(const Gemm& gemm, Range rows, Range cols, const Scratch& scratch) {
  for (int64 i = 0; i < rows.count; ++i) {
    Out* d = gemm.d.row<Out>(rows.first + i) + cols.first;
    const Out* c = gemm.c.absent() ? nullptr : gemm.c.row<const Out>(rows.first + i) + cols.first;
    for (int64 col = 0; col < cols.count; col += kPanel) {
      const float* sum = scratch.sum + col * rows.count + i * kPanel;
      const int64 count = std::min(kPanel, cols.count - col);
#pragma omp simd
      for (int64 j = 0; j < count; ++j)
        d[col + j] = from_float<Out>(c != nullptr ? to_float(c[col + j]) + sum[j] : sum[j]);
    }
  }
}

template <typename In, typename Out>
void compute_tile(const Gemm& gemm, Range rows, Range cols) {
  const Scratch scratch;
  if (gemm.k() == 0)
    std::fill_n(scratch.sum, rows.count * ceil_div(cols.count, kPanel) * kPanel, 0.0f);
  else if (gemm.transpose_a)
    sum_tile<In, true>(gemm, rows, cols, scratch);
  else
    sum_tile<In, false>(gemm, rows, cols, scratch);
  write_tile<Out>(gemm, rows, cols, scratch);
}

}  // namespace

void gemm_cpu(Stream& stream, const Gemm& gemm) {
  validate(gemm);
  if (gemm.d.empty()) return;
  const Tiling tiling(gemm.m(), gemm.n(), cpu_threads(stream));
  const int64 across = ceil_div(tiling.n, tiling.cols);
  with_float_type(gemm.a.dtype, [&](auto in) {
    with_float_type(gemm.d.dtype, [&](auto out) {
      parallel_blocks(stream, tiling.count(), [&](int64 tile) {
        const int64 row = tile / across * tiling.rows;
        const int64 col = tile % across * tiling.cols;
        compute_tile<decltype(in), decltype(out)>(gemm, {row, std::min(tiling.rows, tiling.m - row)},
                                                  {col, std::min(tiling.cols, tiling.n - col)});
      });
    });
  });
}

}  // namespace megatoken
