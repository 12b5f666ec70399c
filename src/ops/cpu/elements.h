// Storage types of the CPU kernels: values are float32 in registers, float32 or bf16 in memory.
#pragma once

#include <type_traits>

#include "base/dtype.h"
#include "base/error.h"

namespace megatoken {

inline float to_float(float x) { return x; }
inline float to_float(bf16 x) { return static_cast<float>(x); }

template <typename T>
T from_float(float x) {
  return static_cast<T>(x);
}

// a b + c, rounded once where the processor can do that: written out where a result's last bits must not hang on what
// the compiler contracts.
inline float multiply_add(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

// x as it would read back after being stored as T.
template <typename T>
float rounded_to(float x) {
  return to_float(from_float<T>(x));
}

// Calls f with a value of the C++ type of a dtype that is float32 or bf16.
template <typename F>
void with_float_type(DType dtype, const F& f) {
  if (dtype == DType::f32) {
    f(float{});
  } else {
    check(dtype == DType::bf16, "{} where float32 or bfloat16 was expected", name_of(dtype));
    f(bf16::from_bits(0));
  }
}

}  // namespace megatoken
