#include <cmath>
#include <vector>

#include "ops/cpu/elements.h"
#include "ops/cpu/index_check.h"
#include "ops/cpu/parallel.h"
#include "ops/op_table_cpu.h"

namespace megatoken {
namespace {

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// The sorted row of assignment (t, s).
int64 sorted_row(const View& position, int64 t, int64 s) {
  return position.absent() ? t : position.row<const std::int32_t>(t)[s];
}

template <typename T>
float swiglu_backward_row(T* gate, T* dact, int64 n, float weight) {
  T* const up = gate + n;
  float dot = 0;
  for (int64 j = 0; j < n; ++j) {
    const float g = to_float(gate[j]), u = to_float(up[j]), d = to_float(dact[j]);
    const float s = sigmoid(g);
    const float act = g * s * u;
    dot += act * d;
    gate[j] = from_float<T>(weight * d * u * s * (1.0f + g * (1.0f - s)));
    up[j] = from_float<T>(weight * d * (g * s));
    dact[j] = from_float<T>(weight * act);
  }
  return dot;
}

}  // namespace

void sort_by_expert_cpu(Stream& /*stream*/, const SortByExpert& op) {
  validate(op);
  const int64 experts = op.offsets.cols - 1;
  check_indices("sort_by_expert", op.experts, experts);
  auto* const offsets = op.offsets.as<std::int32_t>();
  std::fill_n(offsets, experts + 1, 0);
  for (int64 t = 0; t < op.experts.rows; ++t)
    for (int64 s = 0; s < op.experts.cols; ++s) ++offsets[op.experts.row<const std::int32_t>(t)[s] + 1];
  for (int64 e = 0; e < experts; ++e) offsets[e + 1] += offsets[e];
  std::vector<std::int32_t> next(offsets, offsets + experts);
  for (int64 t = 0; t < op.experts.rows; ++t)
    for (int64 s = 0; s < op.experts.cols; ++s) {
      const std::int32_t row = next[static_cast<std::size_t>(op.experts.row<const std::int32_t>(t)[s])]++;
      *op.source.row<std::int32_t>(row) = static_cast<std::int32_t>(t);
      op.position.row<std::int32_t>(t)[s] = row;
    }
}

void combine_experts_cpu(Stream& stream, const CombineExperts& op) {
  validate(op);
  if (!op.position.absent()) check_indices("combine_experts", op.position, op.rows.rows);
  const int64 k = op.position.absent() ? 1 : op.position.cols, n = op.out.cols;
  with_float_type(op.rows.dtype, [&](auto in) {
    with_float_type(op.out.dtype, [&](auto out_type) {
      using In = decltype(in);
      using Out = decltype(out_type);
      parallel_rows(stream, op.out.rows, n * (k + 1), [&](int64 first, int64 last) {
        float* const sum = thread_scratch(n);
        for (int64 t = first; t < last; ++t) {
          std::fill_n(sum, n, 0.0f);
          for (int64 s = 0; s < k; ++s) {
            const In* row = op.rows.row<const In>(sorted_row(op.position, t, s));
            const float w = op.weights.absent() ? 1.0f : op.weights.row<const float>(t)[s];
            for (int64 j = 0; j < n; ++j) sum[j] = multiply_add(w, to_float(row[j]), sum[j]);
          }
          const Out* addend = op.addend.absent() ? nullptr : op.addend.row<const Out>(t);
          Out* out = op.out.row<Out>(t);
          for (int64 j = 0; j < n; ++j)
            out[j] = from_float<Out>(addend == nullptr ? sum[j] : to_float(addend[j]) + sum[j]);
        }
      });
    });
  });
}

void expert_swiglu_backward_cpu(Stream& stream, const ExpertSwigluBackward& op) {
  validate(op);
  if (!op.position.absent()) check_indices("expert_swiglu_backward", op.position, op.dact.rows);
  const int64 k = op.weights.cols;
  with_float_type(op.dact.dtype, [&](auto type) {
    using T = decltype(type);
    parallel_rows(stream, op.weights.rows, 4 * k * op.dact.cols, [&](int64 first, int64 last) {
      for (int64 t = first; t < last; ++t)
        for (int64 s = 0; s < k; ++s) {
          const int64 row = sorted_row(op.position, t, s);
          op.dweights.row<float>(t)[s] = swiglu_backward_row(op.gate_up.row<T>(row), op.dact.row<T>(row), op.dact.cols,
                                                             op.weights.row<const float>(t)[s]);
        }
    });
  });
}

void sigmoid_cpu(Stream& /*stream*/, const Sigmoid& op) {
  validate(op);
  for (int64 t = 0; t < op.x.rows; ++t)
    for (int64 j = 0; j < op.x.cols; ++j) op.y.row<float>(t)[j] = sigmoid(op.x.row<const float>(t)[j]);
}

void sigmoid_backward_cpu(Stream& /*stream*/, const SigmoidBackward& op) {
  validate(op);
  with_float_type(op.dx.dtype, [&](auto type) {
    using T = decltype(type);
    for (int64 t = 0; t < op.y.rows; ++t)
      for (int64 j = 0; j < op.y.cols; ++j) {
        const float y = op.y.row<const float>(t)[j];
        op.dx.row<T>(t)[j] = from_float<T>(op.dy.row<const float>(t)[j] * y * (1.0f - y));
      }
  });
}

}  // namespace megatoken
