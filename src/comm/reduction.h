// What groups share in cutting and reducing values.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "comm/group.h"

namespace megatoken {

// [first, last) of `count` elements, the part of one of `size` ranks.
inline std::pair<int64, int64> part_of(int64 count, int64 rank, int64 size) {
  const int64 base = count / size;
  const int64 rest = count % size;
  const int64 first = rank * base + std::min(rank, rest);
  return {first, first + base + (rank < rest ? 1 : 0)};
}

// NaN wins in every order, so that what one rank has found reaches all.
inline double reduce_pair(double a, double b, Reduce op) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  switch (op) {
    case Reduce::sum:
      return a + b;
    case Reduce::max:
      return std::max(a, b);
    case Reduce::min:
      return std::min(a, b);
  }
  return a;
}

}  // namespace megatoken
