// The reference's gradients against central differences of its forwards.
#include "ops/reference.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/random.h"

namespace megatoken {
namespace {

Matrix random_matrix(int64 rows, int64 cols, std::uint64_t stream) {
  Matrix m(rows, cols);
  const Random random(11, stream);
  for (std::size_t i = 0; i < m.data.size(); ++i) m.data[i] = static_cast<double>(random.normal(i));
  return m;
}

double dot(const Matrix& a, const Matrix& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.data.size(); ++i) sum += a.data[i] * b.data[i];
  return sum;
}

// d loss / d x, x being what loss reads, against `gradient`.
void expect_gradient(Matrix& x, const Matrix& gradient, const std::function<double()>& loss) {
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    const double at = x.data[i], h = 1e-5;
    x.data[i] = at + h;
    const double above = loss();
    x.data[i] = at - h;
    const double below = loss();
    x.data[i] = at;
    EXPECT_NEAR((above - below) / (2 * h), gradient.data[i], 1e-7) << i;
  }
}

TEST(Reference, RmsNormGradient) {
  Matrix x = random_matrix(3, 7, 1), weight = random_matrix(1, 7, 2);
  const Matrix dy = random_matrix(3, 7, 3);
  const auto gradient = reference::rms_norm_backward(x, weight, dy, 1e-3);
  const auto loss = [&] { return dot(dy, reference::rms_norm(x, weight, 1e-3)); };
  expect_gradient(x, gradient.dx, loss);
  expect_gradient(weight, gradient.dweight, loss);
}

TEST(Reference, NormRopeGradient) {
  Matrix x = random_matrix(4, 12, 1), weight = random_matrix(1, 6, 2);
  const Matrix dy = random_matrix(4, 12, 3);
  reference::Rope rope{Matrix(4, 1), Matrix(4, 1), random_matrix(2, 3, 4), 1.3};
  for (int64 i = 0; i < 4; ++i) rope.positions(i, 0) = static_cast<double>(7 * i);
  rope.frequency_index(2, 0) = 1;
  for (const Matrix* w : {static_cast<const Matrix*>(nullptr), static_cast<const Matrix*>(&weight)}) {
    const auto gradient = reference::norm_rope_backward(x, w, rope, dy, 6, 1e-3);
    const auto loss = [&] { return dot(dy, reference::norm_rope(x, w, rope, 6, 1e-3)); };
    expect_gradient(x, gradient.dx, loss);
    if (w != nullptr) expect_gradient(weight, gradient.dweight, loss);
  }
}

TEST(Reference, SwigluGradient) {
  Matrix gate_up = random_matrix(3, 8, 1);
  const Matrix dact = random_matrix(3, 4, 2);
  const Matrix gradient = reference::swiglu_backward(gate_up, dact);
  expect_gradient(gate_up, gradient, [&] { return dot(dact, reference::swiglu(gate_up)); });
}

TEST(Reference, CrossEntropyGradient) {
  Matrix logits = random_matrix(3, 5, 1);
  Matrix labels(3, 1);
  labels(1, 0) = 4;
  labels(2, 0) = 2;
  const auto result = reference::cross_entropy(logits, labels);
  expect_gradient(logits, result.dlogits, [&] {
    double sum = 0;
    for (const double x : reference::cross_entropy(logits, labels).loss.data) sum += x;
    return sum;
  });
}

TEST(Reference, AttentionGradient) {
  for (const bool causal : {false, true}) {
    const reference::AttentionShape shape{4, 2, 3, 0.7, causal};
    Matrix q = random_matrix(3, 12, 1), k = random_matrix(5, 6, 2), v = random_matrix(5, 6, 3);
    const Matrix dout = random_matrix(3, 12, 4);
    const auto forward = reference::attention(shape, q, k, v);
    const auto gradient = reference::attention_backward(shape, q, k, v, forward.o, forward.lse, dout);
    const auto loss = [&] { return dot(dout, reference::attention(shape, q, k, v).o); };
    expect_gradient(q, gradient.dq, loss);
    expect_gradient(k, gradient.dk, loss);
    expect_gradient(v, gradient.dv, loss);
  }
}

}  // namespace
}  // namespace megatoken
