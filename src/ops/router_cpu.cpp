// Token by token in float32: m = max z, p = exp(z - m) / sum. Backward, with g the gradient of p: of a chosen expert
// g = dw, or sum_j w_j (dw - dw_j) / (sum of the chosen p) where weights are normalised (differences first: one weight
// is often nearly 1), plus the balancing gradient; dz = p (g - sum_e g_e p_e).
#include <cmath>
#include <vector>

#include "ops/cpu/elements.h"
#include "ops/cpu/index_check.h"
#include "ops/cpu/parallel.h"
#include "ops/op_table_cpu.h"

namespace megatoken {
namespace {

void softmax(const float* z, int64 n, float* p) {
  float largest = z[0];
  for (int64 e = 1; e < n; ++e) largest = std::max(largest, z[e]);
  float sum = 0;
  for (int64 e = 0; e < n; ++e) sum += p[e] = std::exp(z[e] - largest);
  for (int64 e = 0; e < n; ++e) p[e] /= sum;
}

// The most probable expert among those not among the first s of `chosen`; the lowest of equals.
std::int32_t next_expert(const float* p, int64 n, const std::int32_t* chosen, int64 s) {
  std::int32_t best = -1;
  for (std::int32_t e = 0; e < n; ++e) {
    if (std::find(chosen, chosen + s, e) != chosen + s) continue;
    if (best < 0 || p[e] > p[best]) best = e;
  }
  return best;
}

}  // namespace

void router_cpu(Stream& stream, const Router& op) {
  validate(op);
  const int64 n = op.logits.cols, k = op.experts.cols;
  parallel_rows(stream, op.logits.rows, n * (k + 4), [&](int64 first, int64 last) {
    for (int64 t = first; t < last; ++t) {
      float* p = op.logits.row<float>(t);
      softmax(p, n, p);
      auto* chosen = op.experts.row<std::int32_t>(t);
      auto* weight = op.weights.row<float>(t);
      float sum = 0;
      for (int64 s = 0; s < k; ++s) {
        chosen[s] = next_expert(p, n, chosen, s);
        sum += weight[s] = p[chosen[s]];
      }
      for (int64 s = 0; s < k && op.normalize; ++s) weight[s] /= sum;
    }
  });
}

void router_backward_cpu(Stream& stream, const RouterBackward& op) {
  validate(op);
  const int64 n = op.logits.cols, k = op.experts.cols;
  check_indices("router_backward", op.experts, n);
  with_float_type(op.dlogits.dtype, [&](auto type) {
    using T = decltype(type);
    parallel_rows(stream, op.logits.rows, 8 * n, [&](int64 first, int64 last) {
      float* const p = thread_scratch(2 * n);
      float* const g = p + n;
      for (int64 t = first; t < last; ++t) {
        softmax(op.logits.row<const float>(t), n, p);
        const bool balanced = !op.balance.absent() && *op.counted.row<const std::uint8_t>(t) != 0;
        for (int64 e = 0; e < n; ++e) g[e] = balanced ? op.balance.as<const float>()[e] : 0.0f;
        const auto* chosen = op.experts.row<const std::int32_t>(t);
        const auto* weight = op.weights.row<const float>(t);
        const auto* dweight = op.dweights.row<const float>(t);
        float total = 0;
        for (int64 s = 0; s < k; ++s) total += p[chosen[s]];
        for (int64 s = 0; s < k; ++s) {
          float d = dweight[s];
          if (op.normalize) {
            float sum = 0;
            for (int64 j = 0; j < k; ++j) sum += weight[j] * (dweight[s] - dweight[j]);
            d = sum / total;
          }
          g[chosen[s]] += d;
        }
        float mean = 0;
        for (int64 e = 0; e < n; ++e) mean += g[e] * p[e];
        T* dlogits = op.dlogits.row<T>(t);
        for (int64 e = 0; e < n; ++e) dlogits[e] = from_float<T>(p[e] * (g[e] - mean));
      }
    });
  });
}

void router_statistics_cpu(Stream& /*stream*/, const RouterStatistics& op) {
  validate(op);
  const int64 n = op.probabilities.cols;
  check_indices("router_statistics", op.experts, n);
  auto* const counts = op.sums.as<double>();
  double* const sums = counts + n;
  for (int64 t = 0; t < op.probabilities.rows; ++t) {
    if (*op.counted.row<const std::uint8_t>(t) == 0) continue;
    for (int64 s = 0; s < op.experts.cols; ++s) counts[op.experts.row<const std::int32_t>(t)[s]] += 1;
    for (int64 e = 0; e < n; ++e) sums[e] += op.probabilities.row<const float>(t)[e];
  }
}

void balance_loss_cpu(Stream& /*stream*/, const BalanceLoss& op) {
  validate(op);
  const int64 n = op.gradient.cols;
  double loss = 0;
  for (int64 e = 0; e < n; ++e) {
    double count = 0, sum = 0;
    for (int64 r = 0; r < op.sums.rows; ++r) {
      count += op.sums.row<const double>(r)[e];
      sum += op.sums.row<const double>(r)[n + e];
    }
    const double share = op.rows > 0 ? count / op.rows : 0;
    if (op.rows > 0) loss += share * (sum / op.rows);
    op.gradient.as<float>()[e] =
        op.rows > 0 ? static_cast<float>(op.gradient_scale * static_cast<double>(n) * share / op.rows) : 0.0f;
  }
  *op.loss.as<float>() = static_cast<float>(loss * static_cast<double>(n));
}

}  // namespace megatoken
