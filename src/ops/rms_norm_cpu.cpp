// With r = 1 / sqrt(mean(x^2) + eps), xn = x r and g = dy weight: dx = r (g - xn mean(g xn)) + residual,
// dweight += sum over rows of dy xn. In dweight xn is what the forward multiplied weight with, rounded to storage.
#include <vector>

#include "ops/cpu/elements.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/row_sums.h"
#include "ops/op_table_cpu.h"

namespace megatoken {
namespace {

template <typename T>
void forward_row(const T* x, const T* weight, T* y, int64 n, float eps) {
  const float r = inverse_rms(x, n, eps);
#pragma omp simd
  for (int64 j = 0; j < n; ++j) y[j] = from_float<T>(to_float(weight[j]) * rounded_to<T>(to_float(x[j]) * r));
}

// dx may be residual or dy, but not x.
template <typename T, typename Dy, typename Dx>
void backward_row(const T* x, const T* weight, const Dy* dy, const Dx* residual, Dx* dx, float* dweight, int64 n,
                  float eps) {
  const float r = inverse_rms(x, n, eps);
  const float dot = sum_terms(n, [=](int64 j, int64 lanes) {
    return load_first(dy + j, lanes) * load_first(weight + j, lanes) * (load_first(x + j, lanes) * r);
  });
  const float mean = dot / static_cast<float>(n);
#pragma omp simd
  for (int64 j = 0; j < n; ++j) {
    const float normed = to_float(x[j]) * r;
    const float gradient = to_float(dy[j]);
    const float result = r * (gradient * to_float(weight[j]) - normed * mean);
    dweight[j] += gradient * rounded_to<T>(normed);
    dx[j] = from_float<Dx>(residual != nullptr ? to_float(residual[j]) + result : result);
  }
}

template <typename T, typename Dy, typename Dx>
void backward(Stream& stream, const RmsNormBackward& op) {
  const int64 n = op.x.cols;
  const RowChunks chunks(op.x.rows);
  std::vector<float> partial(static_cast<std::size_t>(chunks.count() * n));
  parallel_blocks(stream, chunks.count(), [&](int64 chunk) {
    float* dweight = partial.data() + chunk * n;
    for (int64 i = chunks.first(chunk); i < chunks.last(chunk); ++i) {
      backward_row(op.x.row<const T>(i), op.weight.as<const T>(), op.dy.row<const Dy>(i),
                   op.residual.absent() ? nullptr : op.residual.row<const Dx>(i), op.dx.row<Dx>(i), dweight, n, op.eps);
    }
  });
  float* dweight = op.dweight.as<float>();
  for (int64 j = 0; j < n; ++j) {
    float sum = 0;
    for (int64 chunk = 0; chunk < chunks.count(); ++chunk) sum += partial[static_cast<std::size_t>(chunk * n + j)];
    dweight[j] += sum;
  }
}

}  // namespace

void rms_norm_cpu(Stream& stream, const RmsNorm& op) {
  validate(op);
  with_float_type(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    parallel_rows(stream, op.x.rows, op.x.cols, [&](int64 first, int64 last) {
      for (int64 i = first; i < last; ++i)
        forward_row(op.x.row<const T>(i), op.weight.as<const T>(), op.y.row<T>(i), op.x.cols, op.eps);
    });
  });
}

void rms_norm_backward_cpu(Stream& stream, const RmsNormBackward& op) {
  validate(op);
  if (op.x.empty()) return;
  with_float_type(op.x.dtype, [&](auto x) {
    with_float_type(op.dy.dtype, [&](auto dy) {
      with_float_type(op.dx.dtype, [&](auto dx) { backward<decltype(x), decltype(dy), decltype(dx)>(stream, op); });
    });
  });
}

}  // namespace megatoken
