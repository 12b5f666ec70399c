#include "data/digest.h"

#include <cstring>

#include <fmt/format.h>

namespace megatoken {
namespace {

// Two lanes of multiply-and-fold (the 128-bit product's halves xored), with odd constants of high entropy.
std::uint64_t fold(std::uint64_t a, std::uint64_t b) {
  __extension__ typedef unsigned __int128 Wide;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

constexpr std::uint64_t kA = 0x9E3779B97F4A7C15u, kB = 0xC2B2AE3D27D4EB4Fu;
constexpr std::uint64_t kC = 0xD6E8FEB86659FD93u, kD = 0xA0761D6478BD642Fu;

}  // namespace

void Digest::add_bytes(const void* data, int64 bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint64_t low = low_ ^ static_cast<std::uint64_t>(bytes), high = high_;
  for (; bytes > 0; at += 16, bytes -= 16) {
    std::uint64_t words[2] = {0, 0};
    std::memcpy(words, at, static_cast<std::size_t>(bytes < 16 ? bytes : 16));
    // Each lane sees both words, so neither can be cancelled by a factor that happens to be zero in the other.
    low = fold(low ^ words[0] ^ kA, words[1] ^ kB) + words[0];
    high = fold(high ^ words[1] ^ kC, words[0] ^ kD) + words[1];
  }
  low_ = fold(low ^ kC, high ^ kA) + high;
  high_ = fold(high ^ kD, low ^ kB) + low;
}

std::uint64_t Digest::value() const { return fold(low_ ^ kB, high_ ^ kC); }

std::string Digest::hex() const { return fmt::format("{:016x}{:016x}", low_, high_); }

}  // namespace megatoken
