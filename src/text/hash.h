// Hashes of short byte strings and of id pairs for the module's open-addressing tables.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace megatoken {

// Multiply and fold the 128-bit product.
inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  __extension__ typedef unsigned __int128 Wide;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

inline std::uint64_t hash_bytes(std::string_view text) {
  constexpr std::uint64_t kA = 0x9E3779B97F4A7C15u, kB = 0xD6E8FEB86659FD93u;
  std::uint64_t hash = text.size() * kA;
  const char* at = text.data();
  std::size_t left = text.size();
  for (; left >= 8; at += 8, left -= 8) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    hash = mix(hash ^ word, kB);
  }
  std::uint64_t word = 0;
  if (left > 0) std::memcpy(&word, at, left);
  return mix(hash ^ word ^ kB, kA);
}

inline std::uint64_t hash_pair(std::uint32_t left, std::uint32_t right) {
  return mix((static_cast<std::uint64_t>(left) << 32 | right) ^ 0xA0761D6478BD642Fu, 0xE7037ED1A0B428DBu);
}

// Slots of a table that holds `count` entries: a load of at most three quarters, and always a free one.
inline std::size_t table_slots(std::size_t count) { return count + count / 3 + 4; }

// The slot of a hash among `slots`: its high bits scaled.
inline std::size_t slot_of(std::uint64_t hash, std::size_t slots) {
  __extension__ typedef unsigned __int128 Wide;
  return static_cast<std::size_t>(static_cast<Wide>(hash) * slots >> 64);
}

}  // namespace megatoken
