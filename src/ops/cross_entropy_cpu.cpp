// Per row: the largest logit m; s = sum exp(z - m) and t = sum exp(z - m) (z - m); then loss = log s + m - z[label] and
// entropy = log s - t / s. float32 sums run over kPiece logits at most, these are added up in float64.
#include <cmath>

#include "ops/cpu/elements.h"
#include "ops/cpu/index_check.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/vector.h"
#include "ops/op_table_cpu.h"

namespace megatoken {
namespace {

constexpr int64 kPiece = 4096;

float row_max(const float* z, int64 n) {
  Vec a = splat(-INFINITY);
  Vec b = a;
  int64 j = 0;
  for (; j + 2 * kLanes <= n; j += 2 * kLanes) {
    a = larger(a, load(z + j));
    b = larger(b, load(z + j + kLanes));
  }
  for (; j < n; j += kLanes) a = larger(a, j + kLanes <= n ? load(z + j) : load_part(z + j, n - j, -INFINITY));
  return max_lanes(larger(a, b));
}

struct Sums {
  double exponentials = 0;
  double weighted = 0;
};

// exponentials: where exp(z - m) is put (may be z); null: nowhere.
Sums row_sums(const float* z, float m, int64 n, float* exponentials) {
  Sums sums;
  for (int64 first = 0; first < n; first += kPiece) {
    const int64 last = std::min(n, first + kPiece);
    Vec exponential_sum{};
    Vec weighted_sum{};
    for (int64 j = first; j < last; j += kLanes) {
      const int64 lanes = std::min(kLanes, last - j);
      const Vec below = (lanes == kLanes ? load(z + j) : load_part(z + j, lanes, -INFINITY)) - m;
      const Vec e = exp(below);
      exponential_sum += e;
      weighted_sum += e == 0.0f ? Vec{} : e * below;  // exp(-inf) (-inf) counts as its limit
      if (exponentials == nullptr) continue;
      if (lanes == kLanes)
        store(exponentials + j, e);
      else
        store_part(exponentials + j, e, lanes);
    }
    sums.exponentials += static_cast<double>(sum_lanes(exponential_sum));
    sums.weighted += static_cast<double>(sum_lanes(weighted_sum));
  }
  return sums;
}

bool first_largest_is(const float* z, int64 label, float largest) {
  if (!(z[label] == largest)) return false;
  for (int64 j = 0; j < label; ++j)
    if (z[j] == largest) return false;
  return true;
}

template <typename T>
void row(const CrossEntropy& op, int64 i) {
  const float* z = op.logits.row<const float>(i);
  const int64 n = op.logits.cols;
  const int64 label = *op.labels.row<const std::int32_t>(i);
  const bool gradient = !op.dlogits.absent();
  const float label_logit = z[label];
  const float largest = row_max(z, n);
  const bool correct = first_largest_is(z, label, largest);
  float* exponentials = gradient && std::is_same_v<T, float> ? op.dlogits.row<float>(i) : nullptr;
  const Sums sums = row_sums(z, largest, n, exponentials);
  const double log_sum = std::log(sums.exponentials);
  *op.loss.row<float>(i) =
      static_cast<float>(log_sum + (static_cast<double>(largest) - static_cast<double>(label_logit)));
  *op.correct.row<float>(i) = correct ? 1.0f : 0.0f;
  *op.entropy.row<float>(i) = static_cast<float>(log_sum - sums.weighted / sums.exponentials);
  if (!gradient) return;

  T* d = op.dlogits.row<T>(i);
  const auto scale = static_cast<float>(1.0 / sums.exponentials);
  if constexpr (std::is_same_v<T, float>) {
    for (int64 j = 0; j < n; ++j) d[j] *= scale;
    d[label] -= 1.0f;
  } else {
    const float label_gradient = exp(splat(label_logit - largest))[0] * scale - 1.0f;
    for (int64 j = 0; j < n; j += kLanes) {
      const int64 lanes = std::min(kLanes, n - j);
      const Vec e = exp((lanes == kLanes ? load(z + j) : load_part(z + j, lanes, 0.0f)) - largest);
      store_part(d + j, e * scale, lanes);
    }
    d[label] = from_float<T>(label_gradient);
  }
}

}  // namespace

void cross_entropy_cpu(Stream& stream, const CrossEntropy& op) {
  validate(op);
  check_indices("cross_entropy: labels", op.labels, op.logits.cols);
  with_float_type(op.dlogits.absent() ? DType::f32 : op.dlogits.dtype, [&](auto type) {
    parallel_rows(stream, op.logits.rows, op.logits.cols, [&](int64 first, int64 last) {
      for (int64 i = first; i < last; ++i) row<decltype(type)>(op, i);
    });
  });
}

}  // namespace megatoken
