// Sizes as people read them.
#pragma once

#include <string>

#include "base/dtype.h"

namespace megatoken {

inline double gib(int64 bytes) { return static_cast<double>(bytes) / static_cast<double>(int64{1} << 30); }
// "1.50 GiB", "20.0 MiB" or "0.5 KiB": the largest unit of which there is a whole one, at least KiB.
std::string size_text(int64 bytes);

}  // namespace megatoken
