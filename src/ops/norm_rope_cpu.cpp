// Forward, a head at a time, in float32 until the result is stored: n = x r weight with r = 1 / sqrt(mean(x^2) + eps)
// (n = x without a weight), then the rotation. Backward: dn is dy rotated back; with xn = x r and g = dn weight,
// dx = r (g - xn mean(g xn)) and dweight += sum over tokens and heads of dn xn.
#include <vector>

#include "ops/cpu/elements.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/row_sums.h"
#include "ops/cpu/sincos.h"
#include "ops/op_table_cpu.h"

namespace megatoken {
namespace {

void check_frequency_index(const NormRope& op) {
  if (op.frequency_index.absent()) return;
  for (int64 i = 0; i < op.frequency_index.rows; ++i) {
    const std::int32_t index = *op.frequency_index.row<const std::int32_t>(i);
    check(index >= 0 && index < op.inverse_frequency.rows, "norm_rope: frequency index {} of token {}, {} tables",
          index, i, op.inverse_frequency.rows);
  }
}

// cos and sin of one token, head_dim / 2 each, attention_factor multiplied in as transformers does.
void token_angles(const NormRope& op, int64 token, float* cosine, float* sine) {
  const auto position = static_cast<float>(*op.positions.row<const std::int32_t>(token));
  const int64 table = op.frequency_index.absent() ? 0 : *op.frequency_index.row<const std::int32_t>(token);
  const float* frequency = op.inverse_frequency.row<const float>(table);
#pragma omp simd
  for (int64 j = 0; j < op.head_dim / 2; ++j) {
    const SinCos value = sincos(position * frequency[j]);
    cosine[j] = value.cos * op.attention_factor;
    sine[j] = value.sin * op.attention_factor;
  }
}

// y may be x.
template <typename T>
void forward_head(const T* x, const T* weight, const float* cosine, const float* sine, T* y, int64 head_dim,
                  float eps) {
  const int64 half = head_dim / 2;
  const float r = weight != nullptr ? inverse_rms(x, head_dim, eps) : 1.0f;
#pragma omp simd
  for (int64 j = 0; j < half; ++j) {
    float first = to_float(x[j]) * r;
    float second = to_float(x[j + half]) * r;
    if (weight != nullptr) {
      first *= to_float(weight[j]);
      second *= to_float(weight[j + half]);
    }
    y[j] = from_float<T>(first * cosine[j] - second * sine[j]);
    y[j + half] = from_float<T>(second * cosine[j] + first * sine[j]);
  }
}

// dx may be dy. dn: scratch of head_dim.
template <typename T, typename Dy>
void backward_head(const T* x, const T* weight, const float* cosine, const float* sine, const Dy* dy, T* dx,
                   float* dweight, float* dn, int64 head_dim, float eps) {
  const int64 half = head_dim / 2;
#pragma omp simd
  for (int64 j = 0; j < half; ++j) {
    const float first = to_float(dy[j]);
    const float second = to_float(dy[j + half]);
    dn[j] = first * cosine[j] + second * sine[j];
    dn[j + half] = second * cosine[j] - first * sine[j];
  }
  if (weight == nullptr) {
    for (int64 j = 0; j < head_dim; ++j) dx[j] = from_float<T>(dn[j]);
    return;
  }
  const float r = inverse_rms(x, head_dim, eps);
  const float dot = sum_terms(head_dim, [=](int64 j, int64 lanes) {
    return load_first(dn + j, lanes) * load_first(weight + j, lanes) * (load_first(x + j, lanes) * r);
  });
  const float mean = dot / static_cast<float>(head_dim);
#pragma omp simd
  for (int64 j = 0; j < head_dim; ++j) {
    const float normed = to_float(x[j]) * r;
    dweight[j] += dn[j] * normed;
    dx[j] = from_float<T>(r * (dn[j] * to_float(weight[j]) - normed * mean));
  }
}

template <typename T, typename Dy>
void backward(Stream& stream, const NormRopeBackward& op) {
  const NormRope& forward = op.forward;
  const int64 head_dim = forward.head_dim;
  const T* weight = forward.weight.absent() ? nullptr : forward.weight.as<const T>();
  const RowChunks chunks(op.dx.rows);
  std::vector<float> partial(static_cast<std::size_t>(chunks.count() * head_dim));
  parallel_blocks(stream, chunks.count(), [&](int64 chunk) {
    float* dweight = partial.data() + chunk * head_dim;
    float* dn = thread_scratch(2 * head_dim);
    float* cosine = dn + head_dim;
    float* sine = cosine + head_dim / 2;
    for (int64 token = chunks.first(chunk); token < chunks.last(chunk); ++token) {
      token_angles(forward, token, cosine, sine);
      for (int64 col = 0; col < op.dx.cols; col += head_dim) {
        backward_head(weight == nullptr ? nullptr : forward.x.row<const T>(token) + col, weight, cosine, sine,
                      op.dy.row<const Dy>(token) + col, op.dx.row<T>(token) + col, dweight, dn, head_dim, forward.eps);
      }
    }
  });
  if (weight == nullptr) return;
  for (int64 j = 0; j < head_dim; ++j) {
    float sum = 0;
    for (int64 chunk = 0; chunk < chunks.count(); ++chunk)
      sum += partial[static_cast<std::size_t>(chunk * head_dim + j)];
    op.dweight.as<float>()[j] += sum;
  }
}

}  // namespace

void norm_rope_cpu(Stream& stream, const NormRope& op) {
  validate(op);
  check_frequency_index(op);
  with_float_type(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    const T* weight = op.weight.absent() ? nullptr : op.weight.as<const T>();
    parallel_rows(stream, op.x.rows, op.x.cols, [&](int64 first, int64 last) {
      float* cosine = thread_scratch(op.head_dim);
      float* sine = cosine + op.head_dim / 2;
      for (int64 token = first; token < last; ++token) {
        token_angles(op, token, cosine, sine);
        for (int64 col = 0; col < op.x.cols; col += op.head_dim)
          forward_head(op.x.row<const T>(token) + col, weight, cosine, sine, op.y.row<T>(token) + col, op.head_dim,
                       op.eps);
      }
    });
  });
}

void norm_rope_backward_cpu(Stream& stream, const NormRopeBackward& op) {
  validate(op);
  check_frequency_index(op.forward);
  with_float_type(op.dx.dtype, [&](auto dx) {
    with_float_type(op.dy.dtype, [&](auto dy) { backward<decltype(dx), decltype(dy)>(stream, op); });
  });
}

}  // namespace megatoken
