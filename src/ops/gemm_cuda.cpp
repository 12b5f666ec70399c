// Matrix products by cuBLASLt, in pieces whose operands span fewer than 2^31 elements each, so that no library index can
// overflow. A piece is at least 256 rows or columns unless rows lie further apart than that allows.
#include <algorithm>

#include "device/cuda/cuda_stream.h"
#include "ops/cuda/gemm_plan.h"
#include "ops/cuda/storage.h"
#include "ops/op_table_cuda.h"

namespace megatoken {
namespace {

using namespace cuda;

constexpr int64 kMostSpan = (int64{1} << 31) - 1;
constexpr int64 kRounding = 256;

// Rows of a view that one piece may hold, at least 1.
int64 rows_in_span(const View& v) {
  if (v.rows <= 1) return 1;
  const int64 rows = std::max<int64>(1, (kMostSpan - v.cols) / std::max<int64>(v.row_stride, 1) + 1);
  if (rows >= v.rows || rows < kRounding) return std::min(rows, v.rows);
  return rows / kRounding * kRounding;
}

// d = c, or 0, where there is nothing to multiply.
void copy_addend(Stream& stream, const Gemm& g) {
  if (g.c.absent())
    fill_zero_cuda(stream, {g.d});
  else if (g.c.data != g.d.data)
    convert_cuda(stream, {g.c, g.d});
}

View part(const View& v, bool transposed, int64 first, int64 count, int64 k_first, int64 k_count) {
  return transposed ? v.row_range(k_first, k_count).col_range(first, count)
                    : v.row_range(first, count).col_range(k_first, k_count);
}

}  // namespace

void gemm_cuda(Stream& stream, const Gemm& gemm) {
  validate(gemm);
  require_bf16("gemm", "a", gemm.a);
  if (gemm.d.empty()) return;
  const int64 m = gemm.m(), n = gemm.n(), k = gemm.k();
  if (k == 0) {
    copy_addend(stream, gemm);
    return;
  }
  CudaStream& cuda = cuda_stream(stream);
  int64 m_step = std::min(m, rows_in_span(gemm.d)), n_step = n, k_step = k;
  if (!gemm.c.absent()) m_step = std::min(m_step, rows_in_span(gemm.c));
  (gemm.transpose_a ? k_step : m_step) = std::min(gemm.transpose_a ? k_step : m_step, rows_in_span(gemm.a));
  (gemm.transpose_b ? n_step : k_step) = std::min(gemm.transpose_b ? n_step : k_step, rows_in_span(gemm.b));
  for (int64 i = 0; i < m; i += m_step) {
    for (int64 j = 0; j < n; j += n_step) {
      for (int64 p = 0; p < k; p += k_step) {
        const int64 rows = std::min(m_step, m - i), cols = std::min(n_step, n - j), depth = std::min(k_step, k - p);
        Gemm piece = gemm;
        piece.a = part(gemm.a, gemm.transpose_a, i, rows, p, depth);
        piece.b = part(gemm.b, !gemm.transpose_b, j, cols, p, depth);
        piece.d = gemm.d.row_range(i, rows).col_range(j, cols);
        if (p > 0)
          piece.c = piece.d;
        else if (!gemm.c.absent())
          piece.c = gemm.c.row_range(i, rows).col_range(j, cols);
        if (!gemm_cublaslt(cuda, piece)) gemm_plain(cuda, piece);
      }
    }
  }
  cuda.launched("gemm");
}

}  // namespace megatoken
