// Rows of the op table test: attention of one block, forward, backward and merge.
#pragma once

#include "ops/rig.h"

namespace megatoken {

struct AttentionCase {
  int64 queries, keys, heads, kv_heads, head_dim;
  bool causal;

  reference::AttentionShape shape(double scale) const { return {heads, kv_heads, head_dim, scale, causal}; }
  AttentionMask mask() const { return causal ? AttentionMask::causal : AttentionMask::full; }
  std::string name() const {
    return std::to_string(queries) + "x" + std::to_string(keys) + "_" + std::to_string(heads) + "_" +
           std::to_string(kv_heads) + "_" + std::to_string(head_dim) + (causal ? "_causal" : "_full");
  }
};

inline const std::vector<AttentionCase>& attention_shapes() {
  static const std::vector<AttentionCase> shapes = {
      {1, 1, 1, 1, 1, true},       {1, 1, 2, 1, 64, false},     {3, 3, 4, 2, 8, true},      {5, 300, 2, 2, 64, false},
      {64, 64, 2, 1, 64, true},    {128, 128, 1, 1, 128, true}, {129, 129, 2, 1, 64, true}, {130, 400, 2, 1, 80, true},
      {257, 257, 4, 2, 16, true},  {300, 129, 2, 1, 64, false}, {1, 500, 6, 2, 24, true},   {200, 201, 3, 3, 33, true},
      {400, 10, 1, 1, 256, false}, {0, 5, 2, 1, 16, true},      {0, 0, 2, 1, 16, false},    {31, 543, 8, 1, 64, true},
  };
  return shapes;
}

inline void attention_forward_case(Rig& rig, const AttentionCase& c, DType type) {
  const double scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
  Tensor& q = rig.random("q", c.queries, c.heads * c.head_dim, type, 2);
  Tensor& k = rig.random("k", c.keys, c.kv_heads * c.head_dim, type, 2);
  Tensor& v = rig.random("v", c.keys, c.kv_heads * c.head_dim, type);
  Tensor& o = rig.output("o", c.queries, c.heads * c.head_dim, type);
  Tensor& lse = rig.output("lse", c.heads, c.queries, DType::f32);
  AttentionForward op{q, k, v, o, lse, {}, c.heads, c.kv_heads, c.head_dim, static_cast<float>(scale), c.mask()};
  op.workspace = rig.workspace(rig.ops.attention_forward_workspace(op));
  rig.run([&](Stream& s) { rig.ops.attention_forward(s, op); });
  if (c.queries == 0) return;
  const auto expected = reference::attention(c.shape(scale), Rig::values(q), Rig::values(k), Rig::values(v));
  rig.expect_close(o, expected.o, 2 * tolerance_of(type));
  rig.expect_close(lse, expected.lse, 2e-6);
}

inline void attention_backward_case(Rig& rig, const AttentionCase& c, DType type) {
  const double scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
  Tensor& q = rig.random("q", c.queries, c.heads * c.head_dim, type, 2);
  Tensor& k = rig.random("k", c.keys, c.kv_heads * c.head_dim, type, 2);
  Tensor& v = rig.random("v", c.keys, c.kv_heads * c.head_dim, type);
  reference::AttentionResult forward{Matrix(c.queries, c.heads * c.head_dim), Matrix(c.heads, c.queries)};
  if (c.queries > 0) forward = reference::attention(c.shape(scale), Rig::values(q), Rig::values(k), Rig::values(v));
  // As if more keys had been merged in: a larger lse and another output.
  for (double& x : forward.lse.data) x += 0.5;
  for (double& x : forward.o.data) x = 0.6 * x + 0.1 * rig.normal();
  Tensor& o = rig.filled("o", forward.o, type);
  Tensor& lse = rig.filled("lse", forward.lse, DType::f32);
  Tensor& dout = rig.random("dout", c.queries, c.heads * c.head_dim, type);
  Tensor& dq = rig.inout("dq", c.queries, c.heads * c.head_dim, DType::f32, 0.1);
  Tensor& dk = rig.inout("dk", c.keys, c.kv_heads * c.head_dim, DType::f32, 0.1);
  Tensor& dv = rig.inout("dv", c.keys, c.kv_heads * c.head_dim, DType::f32, 0.1);
  AttentionBackward op{
      q, k, v, o, lse, {}, {}, {}, {}, {}, c.heads, c.kv_heads, c.head_dim, static_cast<float>(scale), c.mask()};
  op.o = o;
  op.dout = dout;
  op.lse = lse;
  op.dq = dq;
  op.dk = dk;
  op.dv = dv;
  op.workspace = rig.workspace(rig.ops.attention_backward_workspace(op));
  rig.run([&](Stream& s) { rig.ops.attention_backward(s, op); });
  auto expected = reference::attention_backward(c.shape(scale), Rig::values(q), Rig::values(k), Rig::values(v),
                                                Rig::values(o), Rig::values(lse), Rig::values(dout));
  const auto compare = [&](Tensor& got, Matrix gradient) {
    const Matrix before = Rig::values(got);
    for (std::size_t i = 0; i < before.data.size(); ++i) gradient.data[i] += before.data[i];
    rig.expect_close(got, gradient, type == DType::bf16 ? 3e-3 : 3e-6);
  };
  compare(dq, expected.dq);
  compare(dk, expected.dk);
  compare(dv, expected.dv);
}

// Attention over two parts of the keys, merged, equals attention over all of them.
inline void attention_merge_case(Rig& rig, int64 rows, int64 heads, int64 head_dim, DType type, bool first) {
  Tensor& part = rig.random("o_part", rows, heads * head_dim, type);
  Tensor& lse_part = rig.random("lse_part", heads, rows, DType::f32, 30);
  Tensor& o =
      first ? rig.output("o", rows, heads * head_dim, DType::f32) : rig.inout("o", rows, heads * head_dim, DType::f32);
  Tensor& lse = first ? rig.output("lse", heads, rows, DType::f32) : rig.inout("lse", heads, rows, DType::f32, 30);
  rig.run([&](Stream& s) { rig.ops.attention_merge(s, {part, lse_part, o, lse, heads, head_dim, first}); });
  Matrix expected_o = Rig::values(part), expected_lse = Rig::values(lse_part);
  const Matrix old_o = Rig::values(o), old_lse = Rig::values(lse);
  for (int64 i = 0; i < rows && !first; ++i) {
    for (int64 head = 0; head < heads; ++head) {
      const double a = old_lse(head, i), b = expected_lse(head, i), m = std::max(a, b);
      const double sum = std::exp(a - m) + std::exp(b - m);
      for (int64 j = head * head_dim; j < (head + 1) * head_dim; ++j)
        expected_o(i, j) = (old_o(i, j) * std::exp(a - m) + expected_o(i, j) * std::exp(b - m)) / sum;
      expected_lse(head, i) = m + std::log(sum);
    }
  }
  rig.expect_close(o, expected_o, 2e-6);
  rig.expect_close(lse, expected_lse, 1e-6);
}

inline void attention_cases(std::vector<OpCase>& cases) {
  for (const DType type : float_types()) {
    for (const AttentionCase& c : attention_shapes()) {
      cases.push_back({"attention_forward_" + short_name(type) + "_" + c.name(),
                       [=](Rig& rig) { attention_forward_case(rig, c, type); }});
      cases.push_back({"attention_backward_" + short_name(type) + "_" + c.name(),
                       [=](Rig& rig) { attention_backward_case(rig, c, type); }});
    }
    for (const bool first : {false, true}) {
      for (const int64 rows : {0, 1, 200}) {
        cases.push_back({"attention_merge_" + short_name(type) + "_" + std::to_string(rows) + (first ? "_first" : ""),
                         [=](Rig& rig) { attention_merge_case(rig, rows, 3, 20, type, first); }});
      }
    }
  }
}

}  // namespace megatoken
