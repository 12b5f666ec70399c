#include "base/random.h"

#include <cmath>
#include <numbers>
#include <utility>

#include "base/error.h"

namespace megatoken {
namespace {

// The paper's multipliers and Weyl constants (golden ratio, sqrt(3) - 1).
constexpr std::uint64_t kMultiplier0 = 0xD2511F53u;
constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57u;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9u;
constexpr std::uint32_t kWeyl1 = 0xBB67AE85u;
constexpr int kRounds = 10;

std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

// Two normals from two words: radius from (a + 1) / 2^32 in (0, 1], angle from b / 2^32.
std::pair<double, double> box_muller(std::uint32_t a, std::uint32_t b) {
  const double radius = std::sqrt(-2.0 * std::log((static_cast<double>(a) + 1.0) * 0x1p-32));
  const double angle = 2.0 * std::numbers::pi * (static_cast<double>(b) * 0x1p-32);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> c, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t p0 = kMultiplier0 * c[0];
    const std::uint64_t p1 = kMultiplier1 * c[2];
    c = {high(p1) ^ c[1] ^ key[0], low(p1), high(p0) ^ c[3] ^ key[1], low(p0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return c;
}

std::array<std::uint32_t, 4> Random::block(std::uint64_t number, std::uint64_t stream) const {
  return philox4x32({low(number), high(number), low(stream), high(stream)}, {low(seed_), high(seed_)});
}

std::uint32_t Random::bits(std::uint64_t index) const { return block(index / 4, stream_)[index % 4]; }

std::uint64_t Random::bits64(std::uint64_t index) const {
  const auto words = block(index / 2, stream_);
  const std::size_t at = index % 2 * 2;
  return static_cast<std::uint64_t>(words[at + 1]) << 32 | words[at];
}

float Random::uniform(std::uint64_t index) const { return static_cast<float>(bits(index) >> 8) * 0x1p-24f; }

std::uint64_t Random::below(std::uint64_t index, std::uint64_t bound) const {
  check(bound > 0, "a random number below 0");
  const std::uint64_t smallest = (0 - bound) % bound;  // 2^64 mod bound: draws whose product falls under it are biased
  for (std::uint64_t retry = 0;; ++retry) {
    const std::uint64_t draw = Random(seed_, stream_ + (retry << 48)).bits64(index);
    const auto product = static_cast<unsigned __int128>(draw) * bound;
    if (static_cast<std::uint64_t>(product) >= smallest) return static_cast<std::uint64_t>(product >> 64);
  }
}

float Random::normal(std::uint64_t index) const {
  const auto words = block(index / 4, stream_);
  const std::size_t pair = index % 4 / 2 * 2;
  const auto [first, second] = box_muller(words[pair], words[pair + 1]);
  return static_cast<float>(index % 2 == 0 ? first : second);
}

void Random::fill_normal(std::span<float> out, std::uint64_t first, float mean, float deviation) const {
  const auto place = [&](std::uint64_t index, double value) {
    if (index >= first && index - first < out.size()) out[index - first] = mean + deviation * static_cast<float>(value);
  };
  for (std::uint64_t number = first / 4; number * 4 < first + out.size(); ++number) {
    const auto words = block(number, stream_);
    for (std::size_t pair = 0; pair < 4; pair += 2) {
      const auto [a, b] = box_muller(words[pair], words[pair + 1]);
      place(number * 4 + pair, a);
      place(number * 4 + pair + 1, b);
    }
  }
}

}  // namespace megatoken
