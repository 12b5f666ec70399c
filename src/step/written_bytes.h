// Which bytes of a lifetime have been written, to find reads of bytes that nothing wrote. Kept as a few rectangles of
// (row, byte column) in one row width; tiles by rows, slices by columns and whole writes stay one or two rectangles.
#pragma once

#include <vector>

#include "step/strided_bytes.h"

namespace megatoken {

class WrittenBytes {
 public:
  // row_bytes: of the rows as the buffer was made (a hint; another width is taken up when the first write has one).
  explicit WrittenBytes(int64 row_bytes = 1) : width_(row_bytes > 0 ? row_bytes : 1) {}

  // Offsets from the start of the buffer.
  void write(const StridedBytes& bytes);
  // Whether every byte was written. Rows at a width that does not divide into the kept one are compared one by one, at
  // most kRowsCompared of them: beyond that a gap may stay unseen, but what was written is never called unwritten.
  bool covers(const StridedBytes& bytes) const;

 private:
  static constexpr int64 kRowsCompared = 4096;
  struct Rect {
    int64 row, rows, column, columns;
  };
  // The rectangles of `bytes` in rows of width_; false when they cannot be told exactly.
  bool rectangles(const StridedBytes& bytes, std::vector<Rect>& out) const;
  void add_run(int64 begin, int64 end, std::vector<Rect>& out) const;
  void add(const Rect& rect);
  bool covered(const Rect& rect) const;

  int64 width_;
  std::vector<Rect> written_;  // may overlap
};

}  // namespace megatoken
