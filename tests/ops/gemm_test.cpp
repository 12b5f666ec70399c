// What the CPU's products promise beyond being right.
#include "ops/rig.h"

namespace megatoken {
namespace {

// A row of the result has the same bits whichever rows it is computed with: token tiles and thread counts of any size
// give the same training.
TEST(CpuGemm, RowsAndColumnsDoNotDependOnTheirNeighbours) {
  constexpr int64 m = 391, n = 205, k = 333;
  for (const DType dtype : float_types()) {
    for (int mode = 0; mode < 4; ++mode) {
      const bool ta = (mode & 1) != 0, tb = (mode & 2) != 0;
      const auto device = create_cpu_device(kTestThreads);
      Rig rig(*device, cpu_op_table(), 5);
      Tensor& a = rig.random("a", ta ? k : m, ta ? m : k, dtype);
      Tensor& b = rig.random("b", tb ? n : k, tb ? k : n, dtype);
      Tensor& whole = rig.output("whole", m, n, DType::f32);
      Tensor& pieces = rig.output("pieces", m, n, DType::f32);
      rig.run([&](Stream& s) {
        rig.ops.gemm(s, {a, b, whole, {}, ta, tb});
        for (const auto& [row, rows] : std::vector<std::pair<int64, int64>>{{0, 1}, {1, 130}, {131, 260}}) {
          for (const auto& [col, cols] : std::vector<std::pair<int64, int64>>{{0, 77}, {77, 128}}) {
            const View a_part = ta ? a.view().col_range(row, rows) : a.view().row_range(row, rows);
            const View b_part = tb ? b.view().row_range(col, cols) : b.view().col_range(col, cols);
            rig.ops.gemm(s, {a_part, b_part, pieces.view().row_range(row, rows).col_range(col, cols), {}, ta, tb});
          }
        }
      });
      EXPECT_EQ(Rig::results(whole).data, Rig::results(pieces).data) << short_name(dtype) << ' ' << ta << tb;
    }
  }
}

// 0 x infinity and NaN reach the result as in any sum; what pads a vector does not.
TEST(CpuGemm, PassesNanOnToItsRowAndColumnOnly) {
  const auto device = create_cpu_device(1);
  Rig rig(*device, cpu_op_table(), 6);
  Tensor& a = rig.random("a", 9, 21, DType::f32);
  Tensor& b = rig.random("b", 21, 19, DType::f32);
  write_element(DType::f32, a.at(a.before, 4, 20), NAN);
  write_element(DType::f32, b.at(b.before, 0, 18), INFINITY);
  Tensor& d = rig.output("d", 9, 19, DType::f32);
  rig.run([&](Stream& s) { rig.ops.gemm(s, {a, b, d, {}}); });
  const Matrix result = Rig::results(d);
  for (int64 i = 0; i < 9; ++i)
    for (int64 j = 0; j < 19; ++j) EXPECT_EQ(std::isfinite(result(i, j)), i != 4 && j != 18) << i << ", " << j;
}

}  // namespace
}  // namespace megatoken
