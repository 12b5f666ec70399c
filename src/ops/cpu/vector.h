// Vectors of the widest float registers the build allows (GCC vector extensions), and exponentials on them.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/dtype.h"

namespace megatoken {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
inline constexpr int kVectorRegisters = 32;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32;
inline constexpr int kVectorRegisters = 16;
#elif defined(__aarch64__)
inline constexpr int kVectorBytes = 16;
inline constexpr int kVectorRegisters = 32;
#else
inline constexpr int kVectorBytes = 16;
inline constexpr int kVectorRegisters = 16;
#endif
inline constexpr int64 kLanes = kVectorBytes / 4;

using Vec = float __attribute__((vector_size(kVectorBytes)));
using VecInt = std::int32_t __attribute__((vector_size(kVectorBytes)));
using VecShort = std::uint16_t __attribute__((vector_size(kVectorBytes / 2)));
using VecUint = std::uint32_t __attribute__((vector_size(kVectorBytes)));

inline Vec load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
inline Vec load(const bf16* p) {
  VecShort s;
  std::memcpy(&s, p, sizeof(s));
  return std::bit_cast<Vec>(__builtin_convertvector(s, VecUint) << 16);
}
// The first n lanes from memory, the others `fill`.
template <typename T>
Vec load_part(const T* p, int64 n, float fill) {
  alignas(kVectorBytes) float lanes[kLanes];
  for (int64 i = 0; i < kLanes; ++i) lanes[i] = fill;
  for (int64 i = 0; i < n; ++i) lanes[i] = static_cast<float>(p[i]);
  return load(lanes);
}
// The first n lanes from memory, n from 1 to kLanes, the others 0.
template <typename T>
Vec load_first(const T* p, int64 n) {
  return n == kLanes ? load(p) : load_part(p, n, 0.0f);
}
inline void store(float* p, Vec v) { std::memcpy(p, &v, sizeof(v)); }
template <typename T>
void store_part(T* p, Vec v, int64 n) {
  alignas(kVectorBytes) float lanes[kLanes];
  store(lanes, v);
  for (int64 i = 0; i < n; ++i) p[i] = static_cast<T>(lanes[i]);
}
inline Vec splat(float x) { return x - Vec{}; }

// Lane i of the result is lane i + kBy of v, lanes counted round.
template <int kBy>
Vec rotate_lanes(Vec v) {
  return [&]<std::size_t... kLane>(std::index_sequence<kLane...>) {
    return __builtin_shufflevector(v, v, ((kLane + kBy) % kLanes)...);
  }
  (std::make_index_sequence<kLanes>());
}
// By halves: lanes i and i + kLanes / 2 first.
template <int kHalf = kLanes / 2>
float sum_lanes(Vec v) {
  if constexpr (kHalf == 0)
    return v[0];
  else
    return sum_lanes<kHalf / 2>(v + rotate_lanes<kHalf>(v));
}
inline float max_lanes(Vec v) {
  float largest = v[0];
  for (int64 i = 1; i < kLanes; ++i) largest = v[i] > largest ? v[i] : largest;
  return largest;
}
// Lane-wise larger value; a NaN in b is passed over.
inline Vec larger(Vec a, Vec b) { return b > a ? b : a; }

// Lanes of the lower or upper halves of a and b in turn: a0 b0 a1 b1 ...
template <bool kUpper>
Vec interleave(Vec a, Vec b) {
  return [&]<std::size_t... kLane>(std::index_sequence<kLane...>) {
    return __builtin_shufflevector(a, b, (kLane % 2 * kLanes + kLane / 2 + (kUpper ? kLanes / 2 : 0))...);
  }
  (std::make_index_sequence<kLanes>());
}

// to[j][i] = from[i][j] for kLanes x kLanes elements: log2(kLanes) perfect shuffles of the rows.
template <typename T>
void transpose_block(const T* from, int64 from_stride, float* to, int64 to_stride) {
  Vec rows[kLanes];
#pragma GCC unroll 16
  for (int64 i = 0; i < kLanes; ++i) rows[i] = load(from + i * from_stride);
#pragma GCC unroll 4
  for (int64 step = 1; step < kLanes; step *= 2) {
    Vec shuffled[kLanes];
#pragma GCC unroll 16
    for (int64 i = 0; i < kLanes / 2; ++i) {
      shuffled[2 * i] = interleave<false>(rows[i], rows[i + kLanes / 2]);
      shuffled[2 * i + 1] = interleave<true>(rows[i], rows[i + kLanes / 2]);
    }
#pragma GCC unroll 16
    for (int64 i = 0; i < kLanes; ++i) rows[i] = shuffled[i];
  }
#pragma GCC unroll 16
  for (int64 i = 0; i < kLanes; ++i) store(to + i * to_stride, rows[i]);
}

// to[j][i] = from[i][j] for any shape.
template <typename T>
void transpose(const T* from, int64 from_stride, int64 rows, int64 cols, float* to, int64 to_stride) {
  const int64 whole_rows = rows / kLanes * kLanes;
  const int64 whole_cols = cols / kLanes * kLanes;
  for (int64 i = 0; i < whole_rows; i += kLanes)
    for (int64 j = 0; j < whole_cols; j += kLanes)
      transpose_block(from + i * from_stride + j, from_stride, to + j * to_stride + i, to_stride);
  for (int64 i = 0; i < rows; ++i)
    for (int64 j = i < whole_rows ? whole_cols : 0; j < cols; ++j)
      to[j * to_stride + i] = static_cast<float>(from[i * from_stride + j]);
}

// Adding and subtracting 1.5 * 2^23 rounds a float of less than 2^22 to an integer, which then also stands in the low
// bits of the sum.
inline constexpr float kRoundShift = 0x1.8p23f;

// 2^x, at most 2 ulp off, for x in [-125, 127]; 0 below (so 2^-inf is 0), undefined above; NaN for NaN. The polynomial
// is the minimax (Remez) one of degree 6 for the relative error on [-1/2, 1/2], 1.9e-9.
inline Vec exp2_small(Vec x) {
  const Vec shifted = x + kRoundShift;
  const Vec f = x - (shifted - kRoundShift);
  Vec p = f * 1.53458121613e-4f + 1.33999311772e-3f;
  p = p * f + 9.61848895633e-3f;
  p = p * f + 5.55032877711e-2f;
  p = p * f + 2.40226468906e-1f;
  p = p * f + 6.93147205737e-1f;
  p = p * f + 1.0f;
  const Vec scale = std::bit_cast<Vec>((std::bit_cast<VecInt>(shifted) << 23) + 0x3F800000);
  return x < -125.0f ? Vec{} : p * scale;
}

// e^x, at most 2 ulp off; 0 under -104, infinity above 88.73, NaN for NaN. Cody and Waite's reduction by ln 2 in two
// parts; minimax polynomial of degree 6 for the relative error on [-ln(2)/2, ln(2)/2], 1.9e-9.
inline Vec exp(Vec x) {
  x = x < -104.0f ? splat(-104.0f) : x;
  x = x > 89.0f ? splat(89.0f) : x;
  const Vec n = (x * 1.44269504f + kRoundShift) - kRoundShift;
  Vec r = x - n * 0x1.62e400p-1f;  // ln 2 to 15 bits: the product is exact
  r = r - n * 0x1.7f7d1cp-20f;     // the rest of ln 2
  Vec p = r * 1.38368461369e-3f + 8.37481577816e-3f;
  p = p * r + 4.16682255661e-2f;
  p = p * r + 1.66664201703e-1f;
  p = p * r + 4.99999920798e-1f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // 2^n in two factors, each a normal number, so that subnormal results and infinity come out by themselves.
  const VecInt whole = __builtin_convertvector(n, VecInt);
  const VecInt half = whole >> 1;
  const Vec first = std::bit_cast<Vec>((half + 127) << 23);
  const Vec second = std::bit_cast<Vec>((whole - half + 127) << 23);
  return p * first * second;
}

}  // namespace megatoken
