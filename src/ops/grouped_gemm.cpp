#include "ops/grouped_gemm.h"

#include <cmath>

#include "ops/shape_check.h"

namespace megatoken {

int64 GroupedGemm::n() const { return product == GroupedProduct::forward ? d.cols : a.cols; }
int64 GroupedGemm::k() const { return product == GroupedProduct::forward ? a.cols : d.cols; }

void validate(const GroupedGemm& op) {
  constexpr std::string_view kName = "grouped_gemm";
  check_view(kName, "offsets", op.offsets, 1, op.offsets.cols, {DType::i32});
  check_count(kName, "groups", op.groups(), 1);
  const int64 m = op.rows(), n = op.n(), k = op.k(), weights = op.groups() * n;
  switch (op.product) {
    case GroupedProduct::forward:
      check_view(kName, "a", op.a, m, k, kFloatTypes);
      check_view(kName, "b", op.b, weights, k, {op.a.dtype});
      check_view(kName, "d", op.d, m, n, {op.a.dtype});
      break;
    case GroupedProduct::input_gradient:
      check_view(kName, "a", op.a, m, n, kFloatTypes);
      check_view(kName, "b", op.b, weights, k, {op.a.dtype});
      check_view(kName, "d", op.d, m, k, {op.a.dtype});
      break;
    case GroupedProduct::weight_gradient:
      check_view(kName, "a", op.a, m, n, kFloatTypes);
      check_view(kName, "b", op.b, m, k, {op.a.dtype});
      check_view(kName, "d", op.d, weights, k, {DType::f32});
      break;
  }
}

Cost cost_of(const GroupedGemm& op) {
  constexpr double kTile = 128;
  const auto m = static_cast<double>(op.rows());
  const auto n = static_cast<double>(op.n()), k = static_cast<double>(op.k());
  const bool weights = op.product == GroupedProduct::weight_gradient;
  const auto outputs = static_cast<double>(weights ? op.d.rows : op.rows());
  return {CostKind::gemm, 2 * m * n * k,
          static_cast<double>(op.a.bytes() + op.b.bytes()) + static_cast<double>(op.d.bytes()) * (weights ? 2 : 1),
          std::ceil(outputs / kTile) * std::ceil(static_cast<double>(op.d.cols) / kTile)};
}

}  // namespace megatoken
