// What the ops refuse, before they have written anything, and what they make of values that are not numbers.
#include "ops/rig.h"

namespace megatoken {
namespace {

class Refusals : public testing::Test {
 protected:
  std::unique_ptr<Device> device = create_cpu_device(kTestThreads);
  Rig rig{*device, cpu_op_table(), 9};
};

TEST_F(Refusals, Shapes) {
  Tensor& a = rig.random("a", 4, 6, DType::f32);
  Tensor& b = rig.random("b", 5, 3, DType::f32);
  Tensor& d = rig.output("d", 4, 3, DType::f32);
  rig.run_refused([&](Stream& s) { rig.ops.gemm(s, {a, b, d, {}}); }, "gemm: b is 5x3, not 6x3");
  rig.run_refused([&](Stream& s) { rig.ops.convert(s, {a, d}); }, "convert: y is 4x3, not 4x6");
  rig.run_refused([&](Stream& s) { rig.ops.swiglu(s, {b, d}); }, "swiglu: gate_up");
}

TEST_F(Refusals, Types) {
  Tensor& a = rig.random("a", 4, 6, DType::f32);
  Tensor& b = rig.random("b", 6, 3, DType::bf16);
  Tensor& d = rig.output("d", 4, 3, DType::f32);
  rig.run_refused([&](Stream& s) { rig.ops.gemm(s, {a, b, d, {}}); }, "gemm: b is bfloat16");
  Tensor& ids = rig.indices("ids", 4, 6);
  Tensor& y = rig.output("y", 4, 1, DType::f32);
  rig.run_refused([&](Stream& s) { rig.ops.convert(s, {ids, y}); }, "convert: x is int32");
}

TEST_F(Refusals, OverlappingRowsAndMissingMemory) {
  Tensor& a = rig.random("a", 4, 6, DType::f32);
  Tensor& y = rig.output("y", 4, 6, DType::f32);
  View overlapping = a;
  overlapping.row_stride = 5;
  rig.run_refused([&](Stream& s) { rig.ops.convert(s, {overlapping, y}); }, "rows of x overlap");
  View nowhere = a;
  nowhere.data = nullptr;
  rig.run_refused([&](Stream& s) { rig.ops.convert(s, {nowhere, y}); }, "x points nowhere");
}

TEST_F(Refusals, IndicesOutOfRange) {
  Tensor& table = rig.random("table", 5, 8, DType::f32);
  Tensor& y = rig.output("y", 3, 8, DType::f32);
  Matrix bad(3, 1);
  for (const int value : {-1, 5, 2147483647}) {
    bad(2, 0) = value;
    Tensor& ids = rig.filled("ids", bad, DType::i32);
    const std::string words = fmt::format("index {} at row 2 is not in [0, 5)", value);
    rig.run_refused([&](Stream& s) { rig.ops.embedding(s, {ids, table, y}); }, words);
    rig.run_refused([&](Stream& s) { rig.ops.embedding_backward(s, {ids, y, table}); }, words);
    rig.run_refused([&](Stream& s) { rig.ops.gather_rows(s, {table, ids, y}); }, words);
    rig.run_refused([&](Stream& s) { rig.ops.scatter_rows(s, {y, ids, table}); }, words);
  }
}

TEST_F(Refusals, LabelsOutOfRange) {
  Tensor& logits = rig.random("logits", 2, 7, DType::f32);
  Matrix bad(2, 1);
  bad(1, 0) = 7;
  Tensor& labels = rig.filled("labels", bad, DType::i32);
  Tensor& loss = rig.output("loss", 2, 1, DType::f32);
  Tensor& correct = rig.output("correct", 2, 1, DType::f32);
  Tensor& entropy = rig.output("entropy", 2, 1, DType::f32);
  rig.run_refused(
      [&](Stream& s) {
        rig.ops.cross_entropy(s, {logits, labels, loss, correct, entropy, {}});
      },
      "labels: index 7 at row 1");
}

TEST_F(Refusals, AttentionThatSeesNothing) {
  Tensor& q = rig.random("q", 4, 8, DType::f32);
  Tensor& k = rig.random("k", 3, 8, DType::f32);
  Tensor& o = rig.output("o", 4, 8, DType::f32);
  Tensor& lse = rig.output("lse", 1, 4, DType::f32);
  AttentionForward op{q, k, k, o, lse, {}, 1, 1, 8, 1.0f, AttentionMask::causal};
  rig.run_refused([&](Stream& s) { rig.ops.attention_forward(s, op); }, "4 queries and only 3 keys");
  op.heads = 3;
  op.kv_heads = 2;
  rig.run_refused([&](Stream& s) { rig.ops.attention_forward(s, op); }, "3 query heads over 2 KV heads");
}

TEST_F(Refusals, AttentionWithoutWorkspace) {
  Tensor& q = rig.random("q", 4, 8, DType::f32);
  Tensor& lse = rig.random("lse", 1, 4, DType::f32);
  Tensor& d = rig.inout("d", 4, 8, DType::f32);
  AttentionBackward op{q, q, q, q, q, lse, d, d, d, {}, 1, 1, 8, 1.0f, AttentionMask::full};
  rig.run_refused([&](Stream& s) { rig.ops.attention_backward(s, op); }, "16 needed");
  op.workspace = rig.workspace(300).col_range(4, 296);
  rig.run_refused([&](Stream& s) { rig.ops.attention_backward(s, op); }, "workspace is not 256-byte aligned");
  AttentionForward forward{q, q, q, d, lse, op.workspace, 1, 1, 8, 1.0f, AttentionMask::full};
  rig.run_refused([&](Stream& s) { rig.ops.attention_forward(s, forward); }, "workspace is not 256-byte aligned");
}

TEST_F(Refusals, AdamwWithoutRemainder) {
  Tensor& w = rig.inout("w", 1, 4, DType::bf16);
  Tensor& g = rig.random("g", 1, 4, DType::f32);
  Adamw op;
  op.weight = w;
  op.grad = op.exp_avg = op.exp_avg_sq = g;
  rig.run_refused([&](Stream& s) { rig.ops.adamw(s, op); }, "remainder");
}

class SpecialValues : public Refusals {};

TEST_F(SpecialValues, CrossEntropyOfEqualLogitsTakesTheFirst) {
  Matrix z(3, 40), label(3, 1);
  z(2, 7) = z(2, 39) = 5;
  label(1, 0) = 1;
  label(2, 0) = 7;
  Tensor& logits = rig.filled("logits", z, DType::f32);
  Tensor& labels = rig.filled("labels", label, DType::i32);
  Tensor& loss = rig.output("loss", 3, 1, DType::f32);
  Tensor& correct = rig.output("correct", 3, 1, DType::f32);
  Tensor& entropy = rig.output("entropy", 3, 1, DType::f32);
  rig.run([&](Stream& s) { rig.ops.cross_entropy(s, {logits, labels, loss, correct, entropy, {}}); });
  EXPECT_EQ(Rig::results(correct).data, (std::vector<double>{1, 0, 1}));
  EXPECT_NEAR(Rig::results(loss)(0, 0), std::log(40.0), 1e-6);
  EXPECT_NEAR(Rig::results(entropy)(0, 0), std::log(40.0), 1e-6);
}

TEST_F(SpecialValues, CrossEntropyOfExtremeLogits) {
  Matrix z(4, 20), label(4, 1);
  z(0, 3) = 1e30;       // certain and wrong
  z(1, 0) = -INFINITY;  // a token ruled out
  label(1, 0) = 1;
  z(2, 5) = NAN;
  z(3, 0) = 1e30;  // certain and right
  Tensor& logits = rig.filled("logits", z, DType::f32);
  Tensor& labels = rig.filled("labels", label, DType::i32);
  Tensor& loss = rig.output("loss", 4, 1, DType::f32);
  Tensor& correct = rig.output("correct", 4, 1, DType::f32);
  Tensor& entropy = rig.output("entropy", 4, 1, DType::f32);
  Tensor& d = rig.output("d", 4, 20, DType::f32);
  rig.run([&](Stream& s) { rig.ops.cross_entropy(s, {logits, labels, loss, correct, entropy, d}); });
  EXPECT_FLOAT_EQ(static_cast<float>(Rig::results(loss)(0, 0)), 1e30f);
  EXPECT_EQ(Rig::results(entropy)(0, 0), 0);
  EXPECT_NEAR(Rig::results(loss)(1, 0), std::log(19.0), 1e-6);
  EXPECT_NEAR(Rig::results(entropy)(1, 0), std::log(19.0), 1e-6);
  EXPECT_EQ(Rig::results(d)(1, 0), 0);
  EXPECT_TRUE(std::isnan(Rig::results(loss)(2, 0)));
  EXPECT_EQ(Rig::results(loss)(3, 0), 0);
  EXPECT_EQ(Rig::results(d)(3, 0), 0);
}

// A NaN anywhere in a row of scores must reach that row's result and no other.
TEST_F(SpecialValues, AttentionPassesNanOn) {
  Tensor& q = rig.random("q", 150, 16, DType::f32);
  Tensor& k = rig.random("k", 150, 16, DType::f32);
  Tensor& v = rig.random("v", 150, 16, DType::f32);
  write_element(DType::f32, k.at(k.before, 140, 3), NAN);
  Tensor& o = rig.output("o", 150, 16, DType::f32);
  Tensor& lse = rig.output("lse", 1, 150, DType::f32);
  const AttentionForward op{q, k, v, o, lse, {}, 1, 1, 16, 0.25f, AttentionMask::causal};
  rig.run([&](Stream& s) { rig.ops.attention_forward(s, op); });
  for (int64 i = 0; i < 150; ++i) {
    EXPECT_EQ(std::isnan(Rig::results(o)(i, 5)), i >= 140) << i;
    EXPECT_EQ(std::isnan(Rig::results(lse)(0, i)), i >= 140) << i;
  }
}

// Scores of -inf from infinite keys: no share, and a query that sees nothing else gets 0 and -inf.
TEST_F(SpecialValues, AttentionOfMinusInfinity) {
  Matrix ones(2, 4), keys(3, 4), values(3, 4);
  for (double& x : ones.data) x = 1;
  for (int64 j = 0; j < 4; ++j) {
    keys(0, j) = -INFINITY;
    keys(1, j) = -INFINITY;
    values(0, j) = values(1, j) = 7;
    values(2, j) = 3;
  }
  Tensor& q = rig.filled("q", ones, DType::f32);
  Tensor& k = rig.filled("k", keys, DType::f32);
  Tensor& v = rig.filled("v", values, DType::f32);
  Tensor& o = rig.output("o", 2, 4, DType::f32);
  Tensor& lse = rig.output("lse", 1, 2, DType::f32);
  const AttentionForward op{q, k, v, o, lse, {}, 1, 1, 4, 1.0f, AttentionMask::causal};
  rig.run([&](Stream& s) { rig.ops.attention_forward(s, op); });
  EXPECT_EQ(Rig::results(o)(0, 0), 0);
  EXPECT_EQ(Rig::results(lse)(0, 0), -INFINITY);
  EXPECT_EQ(Rig::results(o)(1, 0), 3);
  EXPECT_EQ(Rig::results(lse)(0, 1), 0);
}

TEST_F(SpecialValues, MergeOfPartsThatSawNothing) {
  Matrix part(3, 2), kept(3, 2), part_lse(1, 3), kept_lse(1, 3);
  for (double& x : part.data) x = 5;
  for (double& x : kept.data) x = 2;
  part_lse(0, 0) = part_lse(0, 2) = kept_lse(0, 1) = kept_lse(0, 2) = -INFINITY;
  Tensor& p = rig.filled("part", part, DType::f32);
  Tensor& pl = rig.filled("part lse", part_lse, DType::f32);
  Tensor& o = rig.filled("o", kept, DType::f32);
  Tensor& lse = rig.filled("lse", kept_lse, DType::f32);
  o.written = lse.written = true;
  rig.run([&](Stream& s) { rig.ops.attention_merge(s, {p, pl, o, lse, 1, 2, false}); });
  EXPECT_EQ(Rig::results(o).data, (std::vector<double>{2, 2, 5, 5, 2, 2}));
  EXPECT_EQ(Rig::results(lse).data, (std::vector<double>{0, 0, -INFINITY}));
}

TEST_F(SpecialValues, SwigluSaturatesAndPassesNanOn) {
  Matrix gate_up(1, 10);
  gate_up.data = {-1000, 1000, -95, NAN, 0, 1, 2, 1, 1, 1};
  Tensor& x = rig.filled("gate_up", gate_up, DType::f32);
  Tensor& act = rig.output("act", 1, 5, DType::f32);
  rig.run([&](Stream& s) { rig.ops.swiglu(s, {x, act}); });
  const Matrix y = Rig::results(act);
  EXPECT_EQ(y(0, 0), 0);
  EXPECT_EQ(y(0, 1), 2000);
  EXPECT_NEAR(y(0, 2), 0, 1e-35);
  EXPECT_TRUE(std::isnan(y(0, 3)));
  EXPECT_EQ(y(0, 4), 0);
}

}  // namespace
}  // namespace megatoken
