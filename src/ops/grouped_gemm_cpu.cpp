#include "ops/op_table_cpu.h"

namespace megatoken {

void grouped_gemm_cpu(Stream& stream, const GroupedGemm& op) {
  validate(op);
  const auto* offsets = op.offsets.as<const std::int32_t>();
  check(offsets[0] == 0 && offsets[op.groups()] == op.rows(), "grouped_gemm: offsets from {} to {} for {} rows",
        offsets[0], offsets[op.groups()], op.rows());
  for (int64 e = 0; e < op.groups(); ++e)
    check(offsets[e] <= offsets[e + 1], "grouped_gemm: offset {} before {}", offsets[e], offsets[e + 1]);
  const bool weights = op.product == GroupedProduct::weight_gradient;
  for (int64 e = 0; e < op.groups(); ++e) {
    const int64 first = offsets[e], rows = offsets[e + 1] - first;
    if (rows == 0) continue;
    const View a = op.a.row_range(first, rows);
    const auto matrix = [&](const View& all) { return all.row_range(e * op.n(), op.n()); };
    if (weights) {
      const View d = matrix(op.d);
      gemm_cpu(stream, {a, op.b.row_range(first, rows), d, d, true, false});
    } else {
      gemm_cpu(stream,
               {a, matrix(op.b), op.d.row_range(first, rows), {}, false, op.product == GroupedProduct::forward});
    }
  }
}

int64 grouped_gemm_workspace_cpu(const GroupedGemm& /*op*/) { return 0; }

}  // namespace megatoken
