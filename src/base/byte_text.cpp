#include "base/byte_text.h"

#include <fmt/format.h>

namespace megatoken {

std::string size_text(int64 bytes) {
  if (bytes >= int64{1} << 30) return fmt::format("{:.2f} GiB", gib(bytes));
  const auto kib = static_cast<double>(bytes) / 1024;
  return bytes >= int64{1} << 20 ? fmt::format("{:.1f} MiB", kib / 1024) : fmt::format("{:.1f} KiB", kib);
}

}  // namespace megatoken
