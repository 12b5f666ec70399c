#include "io/convert.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace megatoken {
namespace {

template <typename T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

// Half precision without branches: exponent and mantissa moved up as a (possibly subnormal) float32, scaled by
// 2^(127-15), and infinities and NaNs, which end up at or above 2^16, given their full exponent back.
float half_to_float(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const float scaled = std::bit_cast<float>(static_cast<std::uint32_t>(h & 0x7FFFu) << 13) * 0x1p112f;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(scaled);
  if (scaled >= 65536.0f) bits |= 0x7F800000u;
  return std::bit_cast<float>(bits | sign);
}

float as_float(float value) { return value; }
float as_float(bf16 value) { return static_cast<float>(value); }
struct half {
  std::uint16_t bits;
};
float as_float(half value) { return half_to_float(value.bits); }

template <typename From, typename To>
void convert(const std::byte* source, std::byte* destination, int64 count) {
  for (int64 i = 0; i < count; ++i) {
    const To value = To(as_float(load<From>(source + i * static_cast<int64>(sizeof(From)))));
    std::memcpy(destination + i * static_cast<int64>(sizeof(To)), &value, sizeof(To));
  }
}

}  // namespace

bool convertible(DType from, DType to) {
  if (from == to) return true;
  const bool source = from == DType::f32 || from == DType::bf16 || from == DType::f16;
  return source && (to == DType::f32 || to == DType::bf16);
}

void convert_elements(DType from, const void* source, DType to, void* destination, int64 count) {
  check(convertible(from, to), "no conversion from {} to {}", name_of(from), name_of(to));
  const auto* in = static_cast<const std::byte*>(source);
  auto* out = static_cast<std::byte*>(destination);
  if (from == to) {
    if (count > 0) std::memcpy(out, in, static_cast<std::size_t>(count * size_of(from)));
  } else if (from == DType::f32) {
    convert<float, bf16>(in, out, count);
  } else if (from == DType::bf16) {
    convert<bf16, float>(in, out, count);
  } else if (to == DType::f32) {
    convert<half, float>(in, out, count);
  } else {
    convert<half, bf16>(in, out, count);
  }
}

}  // namespace megatoken
