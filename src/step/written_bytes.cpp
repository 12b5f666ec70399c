#include "step/written_bytes.h"

#include <algorithm>

namespace megatoken {

// A run of bytes: the rest of a row, whole rows, the start of a row.
void WrittenBytes::add_run(int64 begin, int64 end, std::vector<Rect>& out) const {
  if (begin % width_ != 0 && begin < end) {
    const int64 stop = std::min(end, (begin / width_ + 1) * width_);
    out.push_back({begin / width_, 1, begin % width_, stop - begin});
    begin = stop;
  }
  if (end / width_ > begin / width_) {
    out.push_back({begin / width_, end / width_ - begin / width_, 0, width_});
    begin = end / width_ * width_;
  }
  if (begin < end) out.push_back({begin / width_, 1, 0, end - begin});
}

bool WrittenBytes::rectangles(const StridedBytes& bytes, std::vector<Rect>& out) const {
  if (bytes.rows == 1) {
    add_run(bytes.begin, bytes.begin + bytes.width, out);
    return true;
  }
  if (bytes.stride == width_) {
    const int64 row = bytes.begin / width_;
    const int64 column = bytes.begin % width_;
    const int64 first = std::min(bytes.width, width_ - column);
    out.push_back({row, bytes.rows, column, first});
    if (first < bytes.width) out.push_back({row + 1, bytes.rows, 0, bytes.width - first});
    return true;
  }
  if (bytes.rows > kRowsCompared) return false;
  for (int64 i = 0; i < bytes.rows; ++i) {
    const int64 begin = bytes.begin + i * bytes.stride;
    add_run(begin, begin + bytes.width, out);
  }
  return true;
}

void WrittenBytes::write(const StridedBytes& bytes) {
  if (written_.empty() && bytes.rows > 1) width_ = bytes.stride;
  std::vector<Rect> rects;
  // Too ragged to keep: taken as all of its span, which may hide a gap but never invents one.
  if (!rectangles(bytes, rects)) add_run(bytes.begin, bytes.end(), rects);
  for (const Rect& rect : rects) add(rect);
}

void WrittenBytes::add(const Rect& rect) {
  if (covered(rect)) return;
  Rect merged = rect;
  for (bool again = true; again;) {
    again = false;
    for (std::size_t i = 0; i < written_.size(); ++i) {
      const Rect& r = written_[i];
      const bool same_columns = r.column == merged.column && r.columns == merged.columns;
      const bool rows_touch = r.row <= merged.row + merged.rows && merged.row <= r.row + r.rows;
      const bool same_rows = r.row == merged.row && r.rows == merged.rows;
      const bool columns_touch = r.column <= merged.column + merged.columns && merged.column <= r.column + r.columns;
      const bool inside = r.row >= merged.row && r.row + r.rows <= merged.row + merged.rows &&
                          r.column >= merged.column && r.column + r.columns <= merged.column + merged.columns;
      if (!inside && !(same_columns && rows_touch) && !(same_rows && columns_touch)) continue;
      const int64 row_end = std::max(r.row + r.rows, merged.row + merged.rows);
      const int64 column_end = std::max(r.column + r.columns, merged.column + merged.columns);
      merged.row = std::min(r.row, merged.row);
      merged.column = std::min(r.column, merged.column);
      merged.rows = row_end - merged.row;
      merged.columns = column_end - merged.column;
      written_.erase(written_.begin() + static_cast<std::ptrdiff_t>(i));
      again = true;
      break;
    }
  }
  written_.push_back(merged);
}

bool WrittenBytes::covered(const Rect& rect) const {
  // What is left of `rect` once each written rectangle is cut out of it.
  std::vector<Rect> left = {rect};
  std::vector<Rect> next;
  for (const Rect& w : written_) {
    next.clear();
    for (const Rect& r : left) {
      const int64 top = std::max(r.row, w.row);
      const int64 bottom = std::min(r.row + r.rows, w.row + w.rows);
      const int64 from = std::max(r.column, w.column);
      const int64 to = std::min(r.column + r.columns, w.column + w.columns);
      if (top >= bottom || from >= to) {
        next.push_back(r);
        continue;
      }
      if (top > r.row) next.push_back({r.row, top - r.row, r.column, r.columns});
      if (bottom < r.row + r.rows) next.push_back({bottom, r.row + r.rows - bottom, r.column, r.columns});
      if (from > r.column) next.push_back({top, bottom - top, r.column, from - r.column});
      if (to < r.column + r.columns) next.push_back({top, bottom - top, to, r.column + r.columns - to});
    }
    left.swap(next);
    if (left.empty()) return true;
  }
  return false;
}

bool WrittenBytes::covers(const StridedBytes& bytes) const {
  std::vector<Rect> rects;
  if (!rectangles(bytes, rects)) {
    for (const int64 i : {int64{0}, bytes.rows - 1}) {
      const int64 begin = bytes.begin + i * bytes.stride;
      add_run(begin, begin + bytes.width, rects);
    }
  }
  return std::all_of(rects.begin(), rects.end(), [&](const Rect& rect) { return covered(rect); });
}

}  // namespace megatoken
