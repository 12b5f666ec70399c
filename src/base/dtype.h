// Element types and the bf16 / f16 storage formats.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace megatoken {

using int64 = std::int64_t;

enum class DType : std::uint8_t { f32, bf16, f16, f64, i64, i32, u16, u8 };

constexpr int64 size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
    case DType::u16:
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}

// "float32", "bfloat16", ...: the spelling of configuration files.
std::string_view name_of(DType dtype);

// bfloat16: the upper half of an IEEE float32. Conversion rounds to nearest, ties to even; NaN stays NaN.
struct bf16 {
  std::uint16_t bits;

  bf16() = default;
  explicit bf16(float value) : bits(round(value)) {}
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
  static bf16 from_bits(std::uint16_t b) {
    bf16 r;
    r.bits = b;
    return r;
  }

 private:
  static std::uint16_t round(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
    const std::uint32_t quiet_nan = (u >> 16) | 0x40u;
    return static_cast<std::uint16_t>((u & 0x7FFFFFFFu) > 0x7F800000u ? quiet_nan : rounded);
  }
};
static_assert(sizeof(bf16) == 2);

// IEEE half precision bits to float32 (read from checkpoints only; nothing is computed or stored in f16).
float f16_to_float(std::uint16_t bits);

}  // namespace megatoken
