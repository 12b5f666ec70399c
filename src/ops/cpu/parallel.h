// How the CPU ops use threads. Work is cut into blocks whose size depends on shapes alone, never on the thread count,
// and each block's result is its own: so a result has the same bits for any number of threads.
#pragma once

#include <algorithm>
#include <memory>
#include <new>

#include "base/dtype.h"
#include "device/cpu/cpu_stream.h"

namespace megatoken {

inline int64 ceil_div(int64 a, int64 b) { return (a + b - 1) / b; }

// body(i) for i in [0, blocks), handed out in ascending order. body must not throw.
template <typename Body>
void parallel_blocks(const Stream& stream, int64 blocks, const Body& body) {
  const int threads = static_cast<int>(std::min<int64>(cpu_threads(stream), blocks));
  if (threads <= 1) {
    for (int64 i = 0; i < blocks; ++i) body(i);
    return;
  }
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (int64 i = 0; i < blocks; ++i) body(i);
}

// Elements that make a block of an element-wise op worth a thread's while.
inline constexpr int64 kBlockElements = 16384;

// body(first, last) over row ranges of [0, rows), each of about kBlockElements elements.
template <typename Body>
void parallel_rows(const Stream& stream, int64 rows, int64 cols, const Body& body) {
  const int64 block = std::max<int64>(1, kBlockElements / std::max<int64>(1, cols));
  parallel_blocks(stream, ceil_div(rows, block), [&](int64 i) { body(i * block, std::min(rows, (i + 1) * block)); });
}

// body(row, first column, last column): as parallel_rows, and long rows are cut too.
template <typename Body>
void parallel_pieces(const Stream& stream, int64 rows, int64 cols, const Body& body) {
  if (cols <= 4 * kBlockElements) {
    parallel_rows(stream, rows, cols, [&](int64 first, int64 last) {
      for (int64 i = first; i < last; ++i) body(i, int64{0}, cols);
    });
    return;
  }
  const int64 pieces = ceil_div(cols, kBlockElements);
  parallel_blocks(stream, rows * pieces, [&](int64 i) {
    const int64 first = i % pieces * kBlockElements;
    body(i / pieces, first, std::min(cols, first + kBlockElements));
  });
}

// Rows are reduced (column sums) in at most 64 chunks, whose partial sums are added up in order.
struct RowChunks {
  explicit RowChunks(int64 count_of_rows)
      : rows(count_of_rows), size(std::max<int64>(32, ceil_div(count_of_rows, 64))) {}
  int64 count() const { return ceil_div(rows, size); }
  int64 first(int64 chunk) const { return chunk * size; }
  int64 last(int64 chunk) const { return std::min(rows, (chunk + 1) * size); }
  int64 rows;
  int64 size;
};

// Scratch of the calling thread, 64-byte aligned, kept for the thread's next op; contents undefined. One piece at a
// time: the next call on the same thread may move it. Ask for an amount that does not grow with the sequence.
inline float* thread_scratch(int64 floats) {
  struct Free {
    void operator()(float* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  thread_local std::unique_ptr<float[], Free> data;
  thread_local int64 size = 0;
  if (floats > size) {
    data.reset();
    size = 0;
    data.reset(
        static_cast<float*>(::operator new[](static_cast<std::size_t>(floats) * sizeof(float), std::align_val_t{64})));
    size = floats;
  }
  return data.get();
}

}  // namespace megatoken
