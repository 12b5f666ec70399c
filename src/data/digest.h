// A fast 128-bit hash for recognising content (caches, resumed data). Not for defence against an adversary.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/dtype.h"

namespace megatoken {

class Digest {
 public:
  // Each call is one item: its length is hashed with it, so that "ab", "c" and "a", "bc" differ.
  void add_bytes(const void* data, int64 bytes);
  void add(std::string_view text) { add_bytes(text.data(), static_cast<int64>(text.size())); }
  void add(int64 number) { add_bytes(&number, sizeof number); }

  std::uint64_t value() const;  // 64 of the bits
  std::string hex() const;      // all 128, as 32 digits

 private:
  std::uint64_t low_ = 0x243F6A8885A308D3u, high_ = 0x13198A2E03707344u;  // digits of pi
};

}  // namespace megatoken
