#include "step/strided_bytes.h"

#include <algorithm>

namespace megatoken {
namespace {

int64 floor_div(int64 a, int64 b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }
int64 ceil_div(int64 a, int64 b) { return -floor_div(-a, b); }

// Whether some integer m in [low, high] has from < m * step < to. step > 0.
bool multiple_between(int64 from, int64 to, int64 step, int64 low, int64 high) {
  const int64 first = std::max(low, floor_div(from, step) + 1);
  const int64 last = std::min(high, ceil_div(to, step) - 1);
  return first <= last;
}

// One run of bytes [begin, end) against rows.
bool touches(const StridedBytes& rows, int64 begin, int64 end) {
  // Row i covers [rows.begin + i * stride, + width): it meets the run when begin - width < row begin < end.
  if (rows.rows == 1) return rows.begin < end && begin < rows.begin + rows.width;
  return multiple_between(begin - rows.width - rows.begin, end - rows.begin, rows.stride, 0, rows.rows - 1);
}

}  // namespace

StridedBytes strided_bytes(const View& view, int64 begin) {
  const int64 size = size_of(view.dtype);
  if (view.contiguous()) return {begin, view.elements() * size, view.elements() * size, 1};
  return {begin, view.cols * size, view.row_stride * size, view.rows};
}

bool intersect(const StridedBytes& a, const StridedBytes& b) {
  if (a.begin >= b.end() || b.begin >= a.end()) return false;
  if (a.rows == 1) return touches(b, a.begin, a.begin + a.width);
  if (b.rows == 1) return touches(a, b.begin, b.begin + b.width);
  // Rows i of a and j of b meet when -a.width < (a.begin - b.begin) + i * a.stride - j * b.stride < b.width.
  if (a.stride == b.stride) {
    const int64 shift = b.begin - a.begin;
    return multiple_between(shift - a.width, shift + b.width, a.stride, -(b.rows - 1), a.rows - 1);
  }
  const StridedBytes& fewer = a.rows <= b.rows ? a : b;
  const StridedBytes& more = a.rows <= b.rows ? b : a;
  for (int64 i = 0; i < fewer.rows; ++i) {
    const int64 row = fewer.begin + i * fewer.stride;
    if (touches(more, row, row + fewer.width)) return true;
  }
  return false;
}

}  // namespace megatoken
