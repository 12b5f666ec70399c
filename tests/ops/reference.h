// The ops once more, in plain float64 loops over whole matrices: what every backend's results are compared with.
// reference_test.cpp checks the gradients here against differences of the forwards.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/dtype.h"

namespace megatoken {

struct Matrix {
  Matrix() = default;
  Matrix(int64 num_rows, int64 num_cols)
      : rows(num_rows), cols(num_cols), data(static_cast<std::size_t>(num_rows * num_cols)) {}
  double& operator()(int64 i, int64 j) { return data[static_cast<std::size_t>(i * cols + j)]; }
  double operator()(int64 i, int64 j) const { return data[static_cast<std::size_t>(i * cols + j)]; }
  int64 rows = 0, cols = 0;
  std::vector<double> data;
};

namespace reference {

inline Matrix gemm(const Matrix& a, bool transpose_a, const Matrix& b, bool transpose_b, const Matrix* c) {
  const int64 m = transpose_a ? a.cols : a.rows;
  const int64 k = transpose_a ? a.rows : a.cols;
  const int64 n = transpose_b ? b.rows : b.cols;
  Matrix d(m, n);
  for (int64 i = 0; i < m; ++i) {
    for (int64 j = 0; j < n; ++j) {
      double sum = c != nullptr ? (*c)(i, j) : 0;
      for (int64 p = 0; p < k; ++p) sum += (transpose_a ? a(p, i) : a(i, p)) * (transpose_b ? b(j, p) : b(p, j));
      d(i, j) = sum;
    }
  }
  return d;
}

// 1 / sqrt(mean of squares of n elements from column `first` + eps).
inline double inverse_rms(const Matrix& x, int64 row, int64 first, int64 n, double eps) {
  double sum = 0;
  for (int64 j = 0; j < n; ++j) sum += x(row, first + j) * x(row, first + j);
  return 1 / std::sqrt(sum / static_cast<double>(n) + eps);
}

inline Matrix rms_norm(const Matrix& x, const Matrix& weight, double eps) {
  Matrix y(x.rows, x.cols);
  for (int64 i = 0; i < x.rows; ++i) {
    const double r = inverse_rms(x, i, 0, x.cols, eps);
    for (int64 j = 0; j < x.cols; ++j) y(i, j) = x(i, j) * r * weight(0, j);
  }
  return y;
}

struct NormGradient {
  Matrix dx;
  Matrix dweight;
};

// Of n elements of a row from column `first`, added into gradient.
inline void rms_norm_gradient(const Matrix& x, const Matrix& weight, const Matrix& dy, double eps, int64 row,
                              int64 first, int64 n, NormGradient& gradient) {
  const double r = inverse_rms(x, row, first, n, eps);
  double dot = 0;
  for (int64 j = 0; j < n; ++j) dot += dy(row, first + j) * weight(0, j) * x(row, first + j);
  for (int64 j = 0; j < n; ++j) {
    const double xj = x(row, first + j);
    gradient.dx(row, first + j) = r * dy(row, first + j) * weight(0, j) - r * r * r * xj * dot / static_cast<double>(n);
    gradient.dweight(0, j) += dy(row, first + j) * xj * r;
  }
}

inline NormGradient rms_norm_backward(const Matrix& x, const Matrix& weight, const Matrix& dy, double eps) {
  NormGradient gradient{Matrix(x.rows, x.cols), Matrix(1, x.cols)};
  for (int64 i = 0; i < x.rows; ++i) rms_norm_gradient(x, weight, dy, eps, i, 0, x.cols, gradient);
  return gradient;
}

struct Rope {
  Matrix positions;          // [T, 1]
  Matrix frequency_index;    // [T, 1]
  Matrix inverse_frequency;  // [tables, head_dim / 2]
  double attention_factor = 1;

  // Rotates heads of x by direction * angle. The angle is the float32 product, as the op defines it.
  Matrix rotate(const Matrix& x, double direction) const {
    const int64 half = inverse_frequency.cols;
    Matrix y(x.rows, x.cols);
    for (int64 i = 0; i < x.rows; ++i) {
      for (int64 head = 0; head < x.cols; head += 2 * half) {
        for (int64 j = 0; j < half; ++j) {
          const auto table = static_cast<int64>(frequency_index(i, 0));
          const float angle = static_cast<float>(positions(i, 0)) * static_cast<float>(inverse_frequency(table, j));
          const double c = std::cos(static_cast<double>(angle)) * attention_factor;
          const double s = direction * std::sin(static_cast<double>(angle)) * attention_factor;
          const double x1 = x(i, head + j), x2 = x(i, head + half + j);
          y(i, head + j) = x1 * c - x2 * s;
          y(i, head + half + j) = x2 * c + x1 * s;
        }
      }
    }
    return y;
  }
};

// weight null: no norm.
inline Matrix norm_rope(const Matrix& x, const Matrix* weight, const Rope& rope, int64 head_dim, double eps) {
  if (weight == nullptr) return rope.rotate(x, 1);
  Matrix normed(x.rows, x.cols);
  for (int64 i = 0; i < x.rows; ++i) {
    for (int64 head = 0; head < x.cols; head += head_dim) {
      const double r = inverse_rms(x, i, head, head_dim, eps);
      for (int64 j = 0; j < head_dim; ++j) normed(i, head + j) = x(i, head + j) * r * (*weight)(0, j);
    }
  }
  return rope.rotate(normed, 1);
}

inline NormGradient norm_rope_backward(const Matrix& x, const Matrix* weight, const Rope& rope, const Matrix& dy,
                                       int64 head_dim, double eps) {
  NormGradient gradient{rope.rotate(dy, -1), Matrix(1, head_dim)};
  if (weight == nullptr) return gradient;
  const Matrix rotated = gradient.dx;
  for (int64 i = 0; i < x.rows; ++i)
    for (int64 head = 0; head < x.cols; head += head_dim)
      rms_norm_gradient(x, *weight, rotated, eps, i, head, head_dim, gradient);
  return gradient;
}

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

inline Matrix swiglu(const Matrix& gate_up) {
  const int64 n = gate_up.cols / 2;
  Matrix act(gate_up.rows, n);
  for (int64 i = 0; i < act.rows; ++i)
    for (int64 j = 0; j < n; ++j) act(i, j) = gate_up(i, j) * sigmoid(gate_up(i, j)) * gate_up(i, n + j);
  return act;
}

inline Matrix swiglu_backward(const Matrix& gate_up, const Matrix& dact) {
  const int64 n = dact.cols;
  Matrix d(gate_up.rows, gate_up.cols);
  for (int64 i = 0; i < d.rows; ++i) {
    for (int64 j = 0; j < n; ++j) {
      const double gate = gate_up(i, j), up = gate_up(i, n + j), s = sigmoid(gate);
      d(i, j) = dact(i, j) * up * (s + gate * s * (1 - s));
      d(i, n + j) = dact(i, j) * gate * s;
    }
  }
  return d;
}

struct CrossEntropyResult {
  Matrix loss, correct, entropy, dlogits;
};

inline CrossEntropyResult cross_entropy(const Matrix& logits, const Matrix& labels) {
  const int64 n = logits.rows, vocabulary = logits.cols;
  CrossEntropyResult r{Matrix(n, 1), Matrix(n, 1), Matrix(n, 1), Matrix(n, vocabulary)};
  for (int64 i = 0; i < n; ++i) {
    const auto label = static_cast<int64>(labels(i, 0));
    int64 best = 0;
    for (int64 j = 1; j < vocabulary; ++j)
      if (logits(i, j) > logits(i, best)) best = j;
    const double largest = logits(i, best);
    double sum = 0;
    for (int64 j = 0; j < vocabulary; ++j) sum += std::exp(logits(i, j) - largest);
    r.loss(i, 0) = std::log(sum) + largest - logits(i, label);
    r.correct(i, 0) = best == label ? 1 : 0;
    for (int64 j = 0; j < vocabulary; ++j) {
      const double p = std::exp(logits(i, j) - largest) / sum;
      if (p > 0) r.entropy(i, 0) -= p * std::log(p);
      r.dlogits(i, j) = p - (j == label ? 1 : 0);
    }
  }
  return r;
}

struct AttentionShape {
  int64 heads, kv_heads, head_dim;
  double scale;
  bool causal;

  // Scaled score of a query and a key of one head; -inf where the key is not seen.
  double score(const Matrix& q, const Matrix& k, int64 head, int64 i, int64 j) const {
    if (causal && j > i + k.rows - q.rows) return -std::numeric_limits<double>::infinity();
    const int64 kv = head / (heads / kv_heads);
    double sum = 0;
    for (int64 d = 0; d < head_dim; ++d) sum += q(i, head * head_dim + d) * k(j, kv * head_dim + d);
    return scale * sum;
  }
};

struct AttentionResult {
  Matrix o;    // [Sq, heads * head_dim]
  Matrix lse;  // [heads, Sq]
};

inline AttentionResult attention(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v) {
  AttentionResult r{Matrix(q.rows, q.cols), Matrix(shape.heads, q.rows)};
  std::vector<double> s(static_cast<std::size_t>(k.rows));
  for (int64 head = 0; head < shape.heads; ++head) {
    const int64 kv = head / (shape.heads / shape.kv_heads);
    for (int64 i = 0; i < q.rows; ++i) {
      for (int64 j = 0; j < k.rows; ++j) s[static_cast<std::size_t>(j)] = shape.score(q, k, head, i, j);
      const double largest = *std::max_element(s.begin(), s.end());
      double sum = 0;
      for (double& x : s) sum += x = std::exp(x - largest);
      r.lse(head, i) = largest + std::log(sum);
      for (int64 j = 0; j < k.rows; ++j)
        for (int64 d = 0; d < shape.head_dim; ++d)
          r.o(i, head * shape.head_dim + d) += s[static_cast<std::size_t>(j)] / sum * v(j, kv * shape.head_dim + d);
    }
  }
  return r;
}

struct AttentionGradient {
  Matrix dq, dk, dv;
};

// From a given output and lse, which may be those of more keys than these.
inline AttentionGradient attention_backward(const AttentionShape& shape, const Matrix& q, const Matrix& k,
                                            const Matrix& v, const Matrix& o, const Matrix& lse, const Matrix& dout) {
  AttentionGradient g{Matrix(q.rows, q.cols), Matrix(k.rows, k.cols), Matrix(v.rows, v.cols)};
  const int64 n = shape.head_dim;
  for (int64 head = 0; head < shape.heads; ++head) {
    const int64 kv = head / (shape.heads / shape.kv_heads);
    for (int64 i = 0; i < q.rows; ++i) {
      double delta = 0;
      for (int64 d = 0; d < n; ++d) delta += dout(i, head * n + d) * o(i, head * n + d);
      for (int64 j = 0; j < k.rows; ++j) {
        const double p = std::exp(shape.score(q, k, head, i, j) - lse(head, i));
        double dp = 0;
        for (int64 d = 0; d < n; ++d) dp += dout(i, head * n + d) * v(j, kv * n + d);
        const double ds = shape.scale * p * (dp - delta);
        for (int64 d = 0; d < n; ++d) {
          g.dv(j, kv * n + d) += p * dout(i, head * n + d);
          g.dk(j, kv * n + d) += ds * q(i, head * n + d);
          g.dq(i, head * n + d) += ds * k(j, kv * n + d);
        }
      }
    }
  }
  return g;
}

}  // namespace reference
}  // namespace megatoken
