#include "ops/gemm.h"

#include <cmath>

#include "ops/shape_check.h"

namespace megatoken {

void validate(const Gemm& gemm) {
  const int64 m = gemm.m();
  const int64 n = gemm.n();
  const int64 k = gemm.k();
  check_view("gemm", "a", gemm.a, gemm.transpose_a ? k : m, gemm.transpose_a ? m : k, kFloatTypes);
  check_view("gemm", "b", gemm.b, gemm.transpose_b ? n : k, gemm.transpose_b ? k : n, {gemm.a.dtype});
  check_view("gemm", "d", gemm.d, m, n, kFloatTypes);
  check_optional_view("gemm", "c", gemm.c, m, n, {gemm.d.dtype});
}

Cost cost_of(const Gemm& gemm) {
  constexpr double kTile = 128;  // outputs that a GPU kernel works on at a time: 128 x 128
  const auto m = static_cast<double>(gemm.m());
  const auto n = static_cast<double>(gemm.n());
  const auto k = static_cast<double>(gemm.k());
  const double outputs = gemm.c.absent() ? 1 : 2;
  const auto in = static_cast<double>(size_of(gemm.a.dtype));
  const auto out = static_cast<double>(size_of(gemm.d.dtype));
  return {CostKind::gemm, 2 * m * n * k, (m * k + k * n) * in + m * n * out * outputs,
          std::ceil(m / kTile) * std::ceil(n / kTile)};
}

}  // namespace megatoken
