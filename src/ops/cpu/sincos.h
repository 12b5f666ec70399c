// Sine and cosine of float32 angles for a rotary embedding, written so that loops over it vectorise.
#pragma once

#include <bit>
#include <cstdint>

namespace megatoken {

struct SinCos {
  float sin;
  float cos;
};

// Right to 1 ulp of float32 for every float32 angle under 2^31, which covers positions of millions times frequencies of
// at most 1. The quadrant is taken off in float64 (Cody and Waite, pi/2 in three parts); the polynomials are minimax
// (Remez) for the relative error on [0, pi/4]: 4.6e-12 and 6.7e-14.
inline SinCos sincos(float angle) {
  constexpr double kShift = 0x1.8p52;  // rounds to an integer, which then stands in the low bits
  const double x = angle;
  const double shifted = x * 0.63661977236758134 + kShift;
  const double quarters = shifted - kShift;
  const auto quadrant = std::bit_cast<std::uint64_t>(shifted);
  double r = x - quarters * 0x1.921fbp0;     // pi/2 to 21 bits and the next 18: products with quarters under 2^31
  r = r - quarters * 0x5.4442p-24;           // are exact
  r = r - quarters * 0xd.18469898cc517p-44;  // the rest of pi/2
  const double z = r * r;
  double s = z * 2.71705463894538435e-6 - 1.98391676665813363e-4;
  s = s * z + 8.33332865443560917e-3;
  s = s * z - 1.66666666300734506e-1;
  s = s * z * r + r;
  double c = z * -2.71669778168713356e-7 + 2.47988300455808227e-5;
  c = c * z - 1.38888798645051036e-3;
  c = c * z + 4.16666665323033020e-2;
  c = c * z - 4.99999999992616962e-1;
  c = c * z + 1.0;
  const bool swap = (quadrant & 1u) != 0;
  const double sine = swap ? c : s;
  const double cosine = swap ? s : c;
  return {static_cast<float>((quadrant & 2u) != 0 ? -sine : sine),
          static_cast<float>(((quadrant + 1) & 2u) != 0 ? -cosine : cosine)};
}

}  // namespace megatoken
