// Rows of the op table test: products, element-wise ops, rows and embeddings.
#pragma once

#include "ops/rig.h"

namespace megatoken {

inline Matrix sum_of(const Matrix& a, const Matrix& b) {
  Matrix s = a;
  for (std::size_t i = 0; i < s.data.size(); ++i) s.data[i] += b.data[i];
  return s;
}

inline void gemm_cases(std::vector<OpCase>& cases) {
  struct Shape {
    int64 m, n, k;
  };
  // Edges of register blocks and tiles, and no elements in each dimension.
  const std::vector<Shape> shapes = {{1, 1, 1},      {3, 5, 7},     {16, 16, 16},   {37, 19, 64}, {65, 130, 257},
                                     {256, 513, 31}, {300, 7, 600}, {2, 700, 1030}, {1, 64, 129}, {129, 1, 33},
                                     {0, 8, 8},      {8, 0, 8},     {8, 8, 0}};
  for (const DType in : float_types()) {
    for (const DType out : float_types()) {
      for (const Shape& s : shapes) {
        for (int mode = 0; mode < 4; ++mode) {
          const bool ta = (mode & 1) != 0, tb = (mode & 2) != 0;
          // Addend: none, another matrix, d itself.
          const int addend = static_cast<int>((s.m + s.k + mode) % 3);
          cases.push_back({"gemm_" + short_name(in) + "_" + short_name(out) + "_" + std::to_string(s.m) + "x" +
                               std::to_string(s.n) + "x" + std::to_string(s.k) + (ta ? "_t" : "_n") + (tb ? "t" : "n"),
                           [=](Rig& rig) {
                             Tensor& a = rig.random("a", ta ? s.k : s.m, ta ? s.m : s.k, in);
                             Tensor& b = rig.random("b", tb ? s.n : s.k, tb ? s.k : s.n, in);
                             Tensor& c = rig.random("c", s.m, s.n, out);
                             Tensor& d = addend == 2 ? c : rig.output("d", s.m, s.n, out);
                             d.written = true;
                             Gemm op{a, b, d, {}, ta, tb};
                             if (addend > 0) op.c = c;
                             rig.run([&](Stream& stream) { rig.ops.gemm(stream, op); });
                             const Matrix addend_values = Rig::values(c);
                             rig.expect_close(d,
                                              reference::gemm(Rig::values(a), ta, Rig::values(b), tb,
                                                              addend > 0 ? &addend_values : nullptr),
                                              tolerance_of(out));
                           }});
        }
      }
    }
  }
}

inline void elementwise_cases(std::vector<OpCase>& cases) {
  const std::vector<std::pair<int64, int64>> shapes = {{1, 1}, {5, 33}, {130, 257}, {3, 70000}, {0, 4}, {4, 0}};
  for (const auto& [rows, cols] : shapes) {
    const std::string size = "_" + std::to_string(rows) + "x" + std::to_string(cols);
    for (const DType from : float_types()) {
      for (const DType to : float_types()) {
        const std::string name = "_" + short_name(from) + "_" + short_name(to) + size;
        cases.push_back({"convert" + name, [=, rows = rows, cols = cols](Rig& rig) {
                           Tensor& x = rig.random("x", rows, cols, from);
                           Tensor& y = rig.output("y", rows, cols, to);
                           rig.run([&](Stream& s) { rig.ops.convert(s, {x, y}); });
                           Matrix expected = Rig::values(x);
                           for (double& v : expected.data)
                             if (to == DType::bf16)
                               v = static_cast<double>(static_cast<float>(bf16(static_cast<float>(v))));
                           EXPECT_EQ(Rig::results(y).data, expected.data);  // exact
                         }});
        cases.push_back({"accumulate" + name, [=, rows = rows, cols = cols](Rig& rig) {
                           Tensor& x = rig.random("x", rows, cols, from);
                           Tensor& y = rig.inout("y", rows, cols, to);
                           rig.run([&](Stream& s) { rig.ops.accumulate(s, {x, y}); });
                           rig.expect_close(y, sum_of(Rig::values(x), Rig::values(y)), tolerance_of(to));
                         }});
        cases.push_back({"add_bias" + name, [=, rows = rows, cols = cols](Rig& rig) {
                           Tensor& bias = rig.random("bias", 1, cols, from);
                           Tensor& y = rig.inout("y", rows, cols, to);
                           rig.run([&](Stream& s) { rig.ops.add_bias(s, {y, bias}); });
                           Matrix expected = Rig::values(y);
                           const Matrix b = Rig::values(bias);
                           for (int64 i = 0; i < rows; ++i)
                             for (int64 j = 0; j < cols; ++j) expected(i, j) += b(0, j);
                           rig.expect_close(y, expected, tolerance_of(to));
                         }});
      }
      cases.push_back({"bias_gradient_" + short_name(from) + size, [=, rows = rows, cols = cols](Rig& rig) {
                         Tensor& dy = rig.random("dy", rows, cols, from);
                         Tensor& dbias = rig.inout("dbias", 1, cols, DType::f32);
                         rig.run([&](Stream& s) { rig.ops.bias_gradient(s, {dy, dbias}); });
                         Matrix expected = Rig::values(dbias);
                         const Matrix d = Rig::values(dy);
                         for (int64 i = 0; i < rows; ++i)
                           for (int64 j = 0; j < cols; ++j) expected(0, j) += d(i, j);
                         rig.expect_close(dbias, expected, 1e-6);
                       }});
    }
    for (const DType type : {DType::f32, DType::bf16, DType::u8, DType::f64}) {
      cases.push_back({"fill_zero_" + std::to_string(size_of(type)) + size, [=, rows = rows, cols = cols](Rig& rig) {
                         Tensor& y = rig.output("y", rows, cols, type);
                         rig.run([&](Stream& s) { rig.ops.fill_zero(s, {y}); });
                         EXPECT_EQ(Rig::results(y).data, Matrix(rows, cols).data);
                       }});
    }
  }
  for (const int64 n : {0, 1, 15, 65536, 65537, 200001}) {
    cases.push_back({"sum_squares_" + std::to_string(n), [=](Rig& rig) {
                       Tensor& x = rig.random("x", 1, n, DType::f32);
                       Tensor& result = rig.inout("result", 1, 1, DType::f64);
                       rig.run([&](Stream& s) { rig.ops.sum_squares(s, {x, result}); });
                       Matrix expected = Rig::values(result);
                       for (const double v : Rig::values(x).data) expected(0, 0) += v * v;
                       rig.expect_close(result, expected, 1e-13);
                     }});
  }
}

inline void row_cases(std::vector<OpCase>& cases) {
  struct Shape {
    int64 table, n, cols;
  };
  for (const Shape& shape : std::vector<Shape>{{1, 1, 1}, {50, 7, 33}, {9, 500, 130}, {300, 300, 64}, {5, 0, 8}}) {
    const std::string size =
        "_" + std::to_string(shape.table) + "_" + std::to_string(shape.n) + "x" + std::to_string(shape.cols);
    for (const DType type : float_types()) {
      const std::string name = "_" + short_name(type) + size;
      const auto gathered = [](const Matrix& table, const Matrix& index) {
        Matrix y(index.rows, table.cols);
        for (int64 i = 0; i < y.rows; ++i)
          for (int64 j = 0; j < y.cols; ++j) y(i, j) = table(static_cast<int64>(index(i, 0)), j);
        return y;
      };
      cases.push_back({"embedding" + name, [=](Rig& rig) {
                         Tensor& ids = rig.indices("ids", shape.n, shape.table);
                         Tensor& table = rig.random("table", shape.table, shape.cols, type);
                         Tensor& y = rig.output("y", shape.n, shape.cols, type);
                         rig.run([&](Stream& s) { rig.ops.embedding(s, {ids, table, y}); });
                         EXPECT_EQ(Rig::results(y).data, gathered(Rig::values(table), Rig::values(ids)).data);
                       }});
      cases.push_back({"gather_rows" + name, [=](Rig& rig) {
                         Tensor& x = rig.random("x", shape.table, shape.cols, type);
                         Tensor& index = rig.indices("index", shape.n, shape.table);
                         Tensor& y = rig.output("y", shape.n, shape.cols, type);
                         rig.run([&](Stream& s) { rig.ops.gather_rows(s, {x, index, y}); });
                         EXPECT_EQ(Rig::results(y).data, gathered(Rig::values(x), Rig::values(index)).data);
                       }});
      cases.push_back({"embedding_backward" + name, [=](Rig& rig) {
                         Tensor& ids = rig.indices("ids", shape.n, shape.table);
                         Tensor& dy = rig.random("dy", shape.n, shape.cols, type);
                         Tensor& dtable = rig.inout("dtable", shape.table, shape.cols, DType::f32);
                         rig.run([&](Stream& s) { rig.ops.embedding_backward(s, {ids, dy, dtable}); });
                         Matrix expected = Rig::values(dtable);
                         const Matrix d = Rig::values(dy), index = Rig::values(ids);
                         for (int64 i = 0; i < shape.n; ++i)
                           for (int64 j = 0; j < shape.cols; ++j)
                             expected(static_cast<int64>(index(i, 0)), j) += d(i, j);
                         rig.expect_close(dtable, expected, 1e-6);
                       }});
      if (shape.n > shape.table) continue;  // scatter's indices are distinct
      cases.push_back({"scatter_rows" + name, [=](Rig& rig) {
                         std::vector<double> order;
                         for (int64 i = 0; i < shape.table; ++i) order.push_back(static_cast<double>(i));
                         for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rig.draw(i)]);
                         Matrix picked(shape.n, 1);
                         for (int64 i = 0; i < shape.n; ++i) picked(i, 0) = order[static_cast<std::size_t>(i)];
                         Tensor& x = rig.random("x", shape.n, shape.cols, type);
                         Tensor& index = rig.filled("index", picked, DType::i32);
                         Tensor& y = rig.inout("y", shape.table, shape.cols, type);
                         rig.run([&](Stream& s) { rig.ops.scatter_rows(s, {x, index, y}); });
                         Matrix expected = Rig::values(y);
                         const Matrix rows = Rig::values(x);
                         for (int64 i = 0; i < shape.n; ++i)
                           for (int64 j = 0; j < shape.cols; ++j)
                             expected(static_cast<int64>(picked(i, 0)), j) = rows(i, j);
                         EXPECT_EQ(Rig::results(y).data, expected.data);
                       }});
    }
  }
}

}  // namespace megatoken
