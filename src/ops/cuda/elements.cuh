// Device helpers shared by the kernels: storage types, packs of eight elements, reductions. Values are float32 in
// registers, float32 or bf16 in memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/dtype.h"

namespace megatoken::cuda {

struct Bf16 {
  std::uint16_t bits;
};

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(Bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }

// Two values rounded to nearest even, `low` in the low half (sm_80 and later).
__device__ inline unsigned pack_bf16(float low, float high) {
  unsigned packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

template <typename T>
__device__ T from_float(float x) {
  if constexpr (std::is_same_v<T, float>)
    return x;
  else
    return Bf16{static_cast<std::uint16_t>(pack_bf16(x, 0.0f))};
}

// x as it reads back after being stored as T.
template <typename T>
__device__ float rounded_to(float x) {
  return to_float(from_float<T>(x));
}

// A thread works on up to eight neighbouring elements: 16 bytes of bf16, 32 of float32.
inline constexpr int kPack = 8;

// Elements p[0 .. n) (n <= 0: none), others 0. aligned: p is on a 16-byte boundary.
template <typename T>
__device__ void load8(const T* p, int64 n, bool aligned, float (&x)[kPack]) {
  if (aligned && n >= kPack) {
    if constexpr (std::is_same_v<T, float>) {
      const float4 a = reinterpret_cast<const float4*>(p)[0];
      const float4 b = reinterpret_cast<const float4*>(p)[1];
      x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
      x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
    } else {
      const uint4 v = *reinterpret_cast<const uint4*>(p);
      const unsigned words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        x[2 * i] = __uint_as_float(words[i] << 16);
        x[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000u);
      }
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kPack; ++i) x[i] = i < n ? to_float(p[i]) : 0.0f;
}

template <typename T>
__device__ void store8(T* p, int64 n, bool aligned, const float (&x)[kPack]) {
  if (aligned && n >= kPack) {
    if constexpr (std::is_same_v<T, float>) {
      reinterpret_cast<float4*>(p)[0] = make_float4(x[0], x[1], x[2], x[3]);
      reinterpret_cast<float4*>(p)[1] = make_float4(x[4], x[5], x[6], x[7]);
    } else {
      *reinterpret_cast<uint4*>(p) =
          make_uint4(pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(x[4], x[5]), pack_bf16(x[6], x[7]));
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kPack; ++i)
    if (i < n) p[i] = from_float<T>(x[i]);
}

// Rows of a view; aligned: every row starts on a 16-byte boundary.
template <typename T>
struct Rows {
  T* data;
  int64 stride;
  bool aligned;
  __device__ T* row(int64 i) const { return data + i * stride; }
};

// Sum over groups of `width` neighbouring lanes (a power of 2, at most 32), in every lane of the group.
template <typename T>
__device__ T sum_lanes(T x, int width = 32) {
  for (int offset = width / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, offset);
  return x;
}

// Sum over the threads of equal threadIdx.y; blockDim.x is a multiple of 32. shared: 32 values a threadIdx.y. All
// threads of the block call it, and may use shared again after the next __syncthreads().
__device__ inline float sum_row(float x, float* shared) {
  x = sum_lanes(x);
  if (blockDim.x == 32) return x;
  float* mine = shared + threadIdx.y * 32;
  if (threadIdx.x % 32 == 0) mine[threadIdx.x / 32] = x;
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) / 32;
  return sum_lanes(static_cast<int>(threadIdx.x) % 32 < warps ? mine[threadIdx.x % 32] : 0.0f);
}

// The row and first column of this thread's pack in a matrix cut into `across` tiles a row (see Tiles in launch.cuh).
__device__ inline int64 tile_row(int64 across) {
  return static_cast<int64>(blockIdx.x) / across * blockDim.y + threadIdx.y;
}
__device__ inline int64 tile_col(int64 across) {
  return (static_cast<int64>(blockIdx.x) % across * blockDim.x + threadIdx.x) * kPack;
}

}  // namespace megatoken::cuda
