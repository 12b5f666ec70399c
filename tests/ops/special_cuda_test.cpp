// Values and sizes on CUDA that the op table doesn't have: extreme logits, parts that saw nothing, AdamW bit by bit
// against the CPU, embedding gradients over many tokens, indices out of range.
#include "ops/cuda_rig.h"

namespace megatoken {
namespace {

class SpecialOnCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
    device = create_cuda_device(0);
    rig = std::make_unique<Rig>(*device, cuda_op_table(), 9);
  }
  std::unique_ptr<Device> device;
  std::unique_ptr<Rig> rig;
};

TEST_F(SpecialOnCuda, CrossEntropyOfExtremeLogits) {
  Matrix z(5, 40), label(5, 1);
  z(0, 3) = 1e30;       // certain and wrong
  z(1, 0) = -INFINITY;  // a token ruled out
  label(1, 0) = 1;
  z(2, 5) = NAN;
  z(3, 0) = 1e30;          // certain and right
  z(4, 7) = z(4, 39) = 5;  // the first of two largest
  label(4, 0) = 7;
  Tensor& logits = rig->filled("logits", z, DType::f32);
  Tensor& labels = rig->filled("labels", label, DType::i32);
  Tensor& loss = rig->output("loss", 5, 1, DType::f32);
  Tensor& correct = rig->output("correct", 5, 1, DType::f32);
  Tensor& entropy = rig->output("entropy", 5, 1, DType::f32);
  Tensor& d = rig->output("d", 5, 40, DType::f32);
  rig->run([&](Stream& s) { rig->ops.cross_entropy(s, {logits, labels, loss, correct, entropy, d}); });
  EXPECT_FLOAT_EQ(static_cast<float>(Rig::results(loss)(0, 0)), 1e30f);
  EXPECT_EQ(Rig::results(entropy)(0, 0), 0);
  EXPECT_NEAR(Rig::results(loss)(1, 0), std::log(39.0), 1e-6);
  EXPECT_NEAR(Rig::results(entropy)(1, 0), std::log(39.0), 1e-6);
  EXPECT_EQ(Rig::results(d)(1, 0), 0);
  EXPECT_TRUE(std::isnan(Rig::results(loss)(2, 0)));
  EXPECT_EQ(Rig::results(loss)(3, 0), 0);
  EXPECT_EQ(Rig::results(correct)(3, 0), 1);
  EXPECT_EQ(Rig::results(correct)(4, 0), 1);
}

TEST_F(SpecialOnCuda, CrossEntropyOfAVocabularyAsLargeAsTheyAre) {
  Tensor& logits = rig->random("logits", 3, 151936, DType::f32, 4);
  Tensor& labels = rig->indices("labels", 3, 151936);
  Tensor& loss = rig->output("loss", 3, 1, DType::f32);
  Tensor& correct = rig->output("correct", 3, 1, DType::f32);
  Tensor& entropy = rig->output("entropy", 3, 1, DType::f32);
  Tensor& d = rig->output("d", 3, 151936, DType::bf16);
  rig->run([&](Stream& s) { rig->ops.cross_entropy(s, {logits, labels, loss, correct, entropy, d}); });
  const auto expected = reference::cross_entropy(Rig::values(logits), Rig::values(labels));
  rig->expect_close(loss, expected.loss, 1e-6);
  rig->expect_close(entropy, expected.entropy, 2e-6);
  rig->expect_close(d, expected.dlogits, 6e-3);
}

TEST_F(SpecialOnCuda, MergeOfPartsThatSawNothing) {
  Matrix part(3, 2), kept(3, 2), part_lse(1, 3), kept_lse(1, 3);
  for (double& x : part.data) x = 5;
  for (double& x : kept.data) x = 2;
  part_lse(0, 0) = part_lse(0, 2) = kept_lse(0, 1) = kept_lse(0, 2) = -INFINITY;
  Tensor& p = rig->filled("part", part, DType::bf16);
  Tensor& pl = rig->filled("part lse", part_lse, DType::f32);
  Tensor& o = rig->filled("o", kept, DType::f32);
  Tensor& lse = rig->filled("lse", kept_lse, DType::f32);
  o.written = lse.written = true;
  rig->run([&](Stream& s) { rig->ops.attention_merge(s, {p, pl, o, lse, 1, 2, false}); });
  EXPECT_EQ(Rig::results(o).data, (std::vector<double>{2, 2, 5, 5, 2, 2}));
  EXPECT_EQ(Rig::results(lse).data, (std::vector<double>{0, 0, -INFINITY}));
}

// A NaN anywhere in a row of scores must reach that row's result and no other.
TEST_F(SpecialOnCuda, AttentionPassesNanOn) {
  Tensor& q = rig->random("q", 150, 16, DType::bf16);
  Tensor& k = rig->random("k", 150, 16, DType::bf16);
  Tensor& v = rig->random("v", 150, 16, DType::bf16);
  write_element(DType::bf16, k.at(k.before, 140, 3), NAN);
  Tensor& o = rig->output("o", 150, 16, DType::bf16);
  Tensor& lse = rig->output("lse", 1, 150, DType::f32);
  AttentionForward op{q, k, v, o, lse, {}, 1, 1, 16, 0.25f, AttentionMask::causal};
  op.workspace = rig->workspace(rig->ops.attention_forward_workspace(op));
  rig->run([&](Stream& s) { rig->ops.attention_forward(s, op); });
  for (int64 i = 0; i < 150; ++i) {
    EXPECT_EQ(std::isnan(Rig::results(o)(i, 5)), i >= 140) << i;
    EXPECT_EQ(std::isnan(Rig::results(lse)(0, i)), i >= 140) << i;
  }
}

TEST_F(SpecialOnCuda, SwigluSaturatesAndPassesNanOn) {
  Matrix gate_up(1, 10);
  gate_up.data = {-1000, 1000, -95, NAN, 0, 1, 2, 1, 1, 1};
  Tensor& x = rig->filled("gate_up", gate_up, DType::bf16);
  Tensor& act = rig->output("act", 1, 5, DType::bf16);
  rig->run([&](Stream& s) { rig->ops.swiglu(s, {x, act}); });
  const Matrix y = Rig::results(act);
  EXPECT_EQ(y(0, 0), 0);
  EXPECT_EQ(y(0, 1), 2000);
  EXPECT_NEAR(y(0, 2), 0, 1e-35);
  EXPECT_TRUE(std::isnan(y(0, 3)));
  EXPECT_EQ(y(0, 4), 0);
}

// Over several chunks of tokens, with ids that come once, often and in a row.
TEST_F(SpecialOnCuda, EmbeddingGradientOfManyTokens) {
  constexpr int64 tokens = 9001, vocabulary = 700, hidden = 72;
  Matrix chosen(tokens, 1);
  for (int64 i = 0; i < tokens; ++i)
    chosen(i, 0) = i % 3 == 0 ? 5 : i % 1000 < 40 ? 699 : static_cast<double>(rig->draw(vocabulary));
  Tensor& ids = rig->filled("ids", chosen, DType::i32);
  Tensor& dy = rig->random("dy", tokens, hidden, DType::bf16);
  Tensor& dtable = rig->inout("dtable", vocabulary, hidden, DType::f32);
  rig->run([&](Stream& s) { rig->ops.embedding_backward(s, {ids, dy, dtable}); });
  Matrix expected = Rig::values(dtable);
  const Matrix d = Rig::values(dy);
  for (int64 i = 0; i < tokens; ++i)
    for (int64 j = 0; j < hidden; ++j) expected(static_cast<int64>(chosen(i, 0)), j) += d(i, j);
  rig->expect_close(dtable, expected, 2e-6);
}

TEST_F(SpecialOnCuda, SumOfManySquares) {
  Tensor& x = rig->random("x", 1, 200001, DType::f32);
  Tensor& result = rig->inout("result", 1, 1, DType::f64);
  rig->run([&](Stream& s) { rig->ops.sum_squares(s, {x, result}); });
  Matrix expected = Rig::values(result);
  for (const double v : Rig::values(x).data) expected(0, 0) += v * v;
  rig->expect_close(result, expected, 1e-12);
}

struct AdamwState {
  std::vector<std::byte> bytes;
  std::vector<double> average, square;
};

AdamwState after_steps(Device& device, const OpTable& table, DType type, int64 n, int64 left_out) {
  Rig rig(device, table, 3);
  Tensor& weight = rig.inout("weight", 1, n, type, 0.02);
  Tensor& remainder = rig.filled("remainder", Matrix(1, n), DType::u16);
  Tensor& grad = rig.random("grad", 1, n, DType::f32, 1e-3);
  Tensor& m = rig.inout("exp_avg", 1, n, DType::f32, 1e-3);
  Tensor& v = rig.filled("exp_avg_sq", Matrix(1, n), DType::f32);
  remainder.written = type == DType::bf16;
  v.written = true;
  Adamw op;
  const auto part = [&](const View& whole) { return whole.col_range(left_out, n - left_out); };
  op.weight = part(weight);
  if (type == DType::bf16) op.remainder = part(remainder);
  op.grad = part(grad);
  op.exp_avg = part(m);
  op.exp_avg_sq = part(v);
  op.gradient_scale = 0.37f;
  op.lr = 3e-4;
  op.weight_decay = 0.1;
  rig.run([&](Stream& s) {
    for (op.step = 1; op.step <= 3; ++op.step) rig.ops.adamw(s, op);
  });
  return {rig.written_bytes(), Rig::results(m).data, Rig::results(v).data};
}

// The CPU's compiler may fuse a product and a sum, so a last bit may differ: of the terms of a sum, which may cancel.
TEST_F(SpecialOnCuda, AdamwEqualsTheCpu) {
  const auto cpu = create_cpu_device(2);
  for (const DType type : float_types()) {
    for (const int64 left_out : {0, 3}) {
      const AdamwState a = after_steps(*device, cuda_op_table(), type, 20011, left_out);
      const AdamwState b = after_steps(*cpu, cpu_op_table(), type, 20011, left_out);
      ASSERT_EQ(a.bytes.size(), b.bytes.size());
      for (std::size_t i = 0; i < a.average.size(); ++i) {
        ASSERT_NEAR(a.average[i], b.average[i], 4e-7 * std::fabs(b.average[i]) + 1e-10) << i;
        ASSERT_NEAR(a.square[i], b.square[i], 4e-7 * std::fabs(b.square[i]) + 1e-18) << i;
      }
    }
  }
}

void look_up_beyond_the_table() {
  const auto device = create_cuda_device(0);
  const auto stream = device->create_stream(StreamMode::in_order_inline);
  const Memory table = device->allocate(4096, "table"), ids = device->allocate(256, "ids");
  const std::int32_t bad[2] = {1, 16};
  const Embedding op{View(ids.data(), DType::i32, 2, 1), View(table.data(), DType::bf16, 16, 8),
                     View(table.data() + 2048, DType::bf16, 2, 8)};
  stream->submit([&](Stream& s) {
    s.copy(ids.data(), bad, sizeof(bad));
    cuda_op_table().embedding(s, op);
  });
  try {
    stream->synchronize();
  } catch (const TrainError& e) {
    std::fprintf(stderr, "%s\n", e.what());
    std::_Exit(5);
  }
}

// The kernel stops before it touches anything; the error names the op when the stream is joined, and the process is
// lost.
TEST(CudaIndexDeathTest, OutOfRangeStopsTheKernel) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(look_up_beyond_the_table(), testing::ExitedWithCode(5), "embedding");
}

}  // namespace
}  // namespace megatoken
