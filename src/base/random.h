// Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as
// 1, 2, 3"). A number depends on (seed, stream, index) alone, so any shard of a tensor can be drawn by itself and
// equals that part of the whole.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace megatoken {

// One block: 128 random bits from a 128-bit counter and a 64-bit key, word 0 the least significant.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

// A sequence of draws. seed is the key; stream and index / 4 are the two halves of the counter; index % 4 picks the
// word. Use a distinct stream for each purpose (a tensor, the shuffling of an epoch).
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}

  std::uint32_t bits(std::uint64_t index) const;
  // 64 bits: words 2 * index and 2 * index + 1 of the sequence, the first the lower half.
  std::uint64_t bits64(std::uint64_t index) const;
  // In [0, 1), a multiple of 2^-24: every value is exact in float32.
  float uniform(std::uint64_t index) const;
  // In [0, bound), bound > 0, without bias (Lemire 2019; rejected draws take the next streams of the same index).
  std::uint64_t below(std::uint64_t index, std::uint64_t bound) const;
  // Standard normal by Box and Muller 1958: words 2i and 2i + 1 of the sequence give numbers 2i and 2i + 1.
  float normal(std::uint64_t index) const;
  // out[i] = mean + deviation * normal(first + i).
  void fill_normal(std::span<float> out, std::uint64_t first, float mean, float deviation) const;

 private:
  std::array<std::uint32_t, 4> block(std::uint64_t number, std::uint64_t stream) const;
  std::uint64_t seed_;
  std::uint64_t stream_;
};

}  // namespace megatoken
