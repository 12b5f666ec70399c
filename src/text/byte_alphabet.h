// GPT-2's alphabet of bytes: every byte as one printable character (U+0021..U+0143).
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "text/unicode.h"

namespace megatoken {

class ByteAlphabet {
 public:
  static const ByteAlphabet& get() {
    static const ByteAlphabet alphabet;
    return alphabet;
  }
  std::string_view character(unsigned char byte) const { return text_[byte]; }
  // The byte a character stands for, -1 for any other character.
  int byte(char32_t c) const { return c < byte_.size() ? byte_[c] : -1; }

  void append(std::string_view bytes, std::string& out) const {
    for (const char c : bytes) out += text_[static_cast<unsigned char>(c)];
  }

 private:
  ByteAlphabet() {
    byte_.fill(-1);
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      const char32_t c = printable ? static_cast<char32_t>(b) : next++;
      byte_[c] = b;
      unicode::append_utf8(c, text_[static_cast<std::size_t>(b)]);
    }
  }
  std::array<std::string, 256> text_;
  std::array<int, 0x144> byte_{};
};

}  // namespace megatoken
