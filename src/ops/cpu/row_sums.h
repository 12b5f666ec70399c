// Sums along a row in float32. They are kPartialSums sums side by side, added up by halves: so their accuracy does not
// hang on how wide the build's vectors are or on what the compiler vectorises, and neither do their bits where the
// terms are exact.
#pragma once

#include <cmath>

#include "ops/cpu/tile_product.h"
#include "ops/cpu/vector.h"

namespace megatoken {

inline constexpr int64 kPartialSums = 32;

// term(j, lanes) is the vector of terms j to j + lanes - 1, 0 in the lanes beyond.
template <typename F>
float sum_terms(int64 n, const F& term) {
  constexpr int kVectors = static_cast<int>(kPartialSums / kLanes);
  Vec sums[kVectors] = {};
  int64 j = 0;
  for (; j + kPartialSums <= n; j += kPartialSums)
    unrolled<kVectors>([&](auto i) __attribute__((always_inline)) { sums[i] += term(j + i * kLanes, kLanes); });
  for (int64 i = 0; j < n; ++i, j += kLanes) sums[i] += term(j, n - j < kLanes ? n - j : kLanes);
#pragma GCC unroll 4
  for (int64 half = kVectors / 2; half > 0; half /= 2)
    for (int64 i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sum_lanes(sums[0]);
}

// 1 / sqrt(mean(x^2) + eps) of a row of n.
template <typename T>
float inverse_rms(const T* x, int64 n, float eps) {
  const float sum = sum_terms(n, [x](int64 j, int64 lanes) {
    const Vec v = load_first(x + j, lanes);
    return v * v;
  });
  return 1.0f / std::sqrt(sum / static_cast<float>(n) + eps);
}

}  // namespace megatoken
