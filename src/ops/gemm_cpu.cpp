// d is cut into tiles by its shape alone; each tile is one oneDNN sgemm call on one thread, so the result has the same
// bits for any thread count. bf16 operands are widened panel by panel into the thread's scratch (2.5 MiB at most).
#include <dnnl.h>
#include <omp.h>

#include "ops/cpu/elements.h"
#include "ops/cpu/parallel.h"
#include "ops/gemm.h"
#include "ops/op_table_cpu.h"

namespace megatoken {
namespace {

constexpr int64 kTileRows = 256;
constexpr int64 kTileCols = 512;
constexpr int64 kSmallestTile = 128;
constexpr int64 kTilesWanted = 64;
constexpr int64 kPanelDepth = 512;  // of k, for widened operands

struct Tiling {
  Tiling(int64 rows_of_d, int64 cols_of_d) : m(rows_of_d), n(cols_of_d) {
    while (count() < kTilesWanted && (rows > kSmallestTile || cols > kSmallestTile)) (rows < cols ? cols : rows) /= 2;
  }
  int64 count() const { return ceil_div(m, rows) * ceil_div(n, cols); }
  int64 m, n;
  int64 rows = kTileRows;
  int64 cols = kTileCols;
};

struct Operand {
  const float* data;
  int64 stride;
};

// d = op(a) op(b) + beta d on the calling thread alone.
void multiply(bool transpose_a, bool transpose_b, int64 m, int64 n, int64 k, Operand a, Operand b, float beta, float* d,
              int64 stride) {
  const auto smallest_stride = [](bool transposed, int64 plain, int64 other) { return transposed ? other : plain; };
  // A matrix of one row may have any stride in a view, but not for oneDNN.
  const int64 lda = std::max({a.stride, smallest_stride(transpose_a, k, m), int64{1}});
  const int64 ldb = std::max({b.stride, smallest_stride(transpose_b, n, k), int64{1}});
  const dnnl_status_t status = dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, 1.0f, a.data, lda,
                                          b.data, ldb, beta, d, std::max(stride, n));
  if (status != dnnl_success) std::terminate();  // bad arguments only, and these were checked
}

// rows x cols of a view as contiguous float32.
template <typename T>
void widen(const View& view, int64 row, int64 rows, int64 col, int64 cols, float* out) {
  for (int64 i = 0; i < rows; ++i) {
    const T* from = view.row<const T>(row + i) + col;
    for (int64 j = 0; j < cols; ++j) out[i * cols + j] = to_float(from[j]);
  }
}

struct Tile {
  int64 row, rows, col, cols;
};

// The part of an operand that a range of outputs and a range of k need: the outputs are its rows, or its columns.
template <typename T>
Operand panel(const View& view, bool outputs_are_columns, int64 first, int64 count, int64 k_first, int64 k_count,
              float* scratch) {
  const int64 row = outputs_are_columns ? k_first : first;
  const int64 col = outputs_are_columns ? first : k_first;
  if constexpr (std::is_same_v<T, float>) {
    return {view.row<const float>(row) + col, view.row_stride};
  } else {
    const int64 rows = outputs_are_columns ? k_count : count;
    const int64 cols = outputs_are_columns ? count : k_count;
    widen<T>(view, row, rows, col, cols, scratch);
    return {scratch, cols};
  }
}

template <typename In, typename Out>
void compute_tile(const Gemm& gemm, const Tile& tile) {
  constexpr bool kWiden = std::is_same_v<In, bf16>;
  constexpr bool kNarrow = std::is_same_v<Out, bf16>;
  float* a_panel = kWiden || kNarrow
                       ? thread_scratch(kTileRows * kPanelDepth + kPanelDepth * kTileCols + kTileRows * kTileCols)
                       : nullptr;
  float* b_panel = a_panel + (a_panel != nullptr ? kTileRows * kPanelDepth : 0);
  float* narrow_sum = b_panel + (a_panel != nullptr ? kPanelDepth * kTileCols : 0);
  float* sum;
  int64 sum_stride;
  if constexpr (kNarrow) {
    sum = narrow_sum;
    sum_stride = tile.cols;
  } else {
    sum = gemm.d.row<float>(tile.row) + tile.col;
    sum_stride = gemm.d.row_stride;
  }

  // The addend first, so that everything is one chain of float32 sums.
  const bool add = !gemm.c.absent();
  const bool in_place = !kNarrow && gemm.c.data == gemm.d.data && gemm.c.row_stride == gemm.d.row_stride;
  const int64 k = gemm.k();
  if (!in_place && (add || k == 0)) {
    for (int64 i = 0; i < tile.rows; ++i) {
      const Out* c = add ? gemm.c.row<const Out>(tile.row + i) + tile.col : nullptr;
      for (int64 j = 0; j < tile.cols; ++j) sum[i * sum_stride + j] = add ? to_float(c[j]) : 0.0f;
    }
  }
  const int64 depth = kWiden ? kPanelDepth : std::max<int64>(k, 1);
  for (int64 first = 0; first < k; first += depth) {
    const int64 count = std::min(depth, k - first);
    const Operand a = panel<In>(gemm.a, gemm.transpose_a, tile.row, tile.rows, first, count, a_panel);
    const Operand b = panel<In>(gemm.b, !gemm.transpose_b, tile.col, tile.cols, first, count, b_panel);
    multiply(gemm.transpose_a, gemm.transpose_b, tile.rows, tile.cols, count, a, b, add || first > 0 ? 1.0f : 0.0f, sum,
             sum_stride);
  }
  if constexpr (kNarrow) {
    for (int64 i = 0; i < tile.rows; ++i) {
      Out* d = gemm.d.row<Out>(tile.row + i) + tile.col;
      for (int64 j = 0; j < tile.cols; ++j) d[j] = from_float<Out>(sum[i * sum_stride + j]);
    }
  }
}

}  // namespace

void gemm_cpu(Stream& stream, const Gemm& gemm) {
  validate(gemm);
  const Tiling tiling(gemm.m(), gemm.n());
  if (gemm.d.empty()) return;
  const int64 across = ceil_div(tiling.n, tiling.cols);
  with_float_type(gemm.a.dtype, [&](auto in) {
    with_float_type(gemm.d.dtype, [&](auto out) {
      const int64 tiles = tiling.count();
      const int threads = static_cast<int>(std::min<int64>(cpu_threads(stream), tiles));
#pragma omp parallel num_threads(threads)
      {
        omp_set_num_threads(1);  // of this region's threads: oneDNN starts none of its own
#pragma omp for schedule(dynamic, 1)
        for (int64 i = 0; i < tiles; ++i) {
          const int64 row = i / across * tiling.rows;
          const int64 col = i % across * tiling.cols;
          compute_tile<decltype(in), decltype(out)>(
              gemm, {row, std::min(tiling.rows, tiling.m - row), col, std::min(tiling.cols, tiling.n - col)});
        }
      }
    });
  });
}

}  // namespace megatoken
