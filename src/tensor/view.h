// A non-owning view of a row-major matrix. Everything the program computes on is one: tokens x features, heads x tokens,
// or a flat vector as 1 x n. Attention's "heads" are column slices, so a head group is a view with a larger row stride.
#pragma once

#include <cstddef>
#include <type_traits>

#include "base/dtype.h"
#include "base/error.h"

namespace megatoken {

template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::f32;
  if constexpr (std::is_same_v<T, bf16>) return DType::bf16;
  if constexpr (std::is_same_v<T, double>) return DType::f64;
  if constexpr (std::is_same_v<T, std::int64_t>) return DType::i64;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::i32;
  if constexpr (std::is_same_v<T, std::uint16_t>) return DType::u16;
  if constexpr (std::is_same_v<T, std::uint8_t>) return DType::u8;
}

struct View {
  std::byte* data = nullptr;
  DType dtype = DType::f32;
  int64 rows = 0;
  int64 cols = 0;
  int64 row_stride = 0;  // in elements, >= cols; rows may be further apart than they are wide

  View() = default;
  View(void* pointer, DType type, int64 num_rows, int64 num_cols, int64 stride)
      : data(static_cast<std::byte*>(pointer)), dtype(type), rows(num_rows), cols(num_cols), row_stride(stride) {}
  View(void* pointer, DType type, int64 num_rows, int64 num_cols)
      : View(pointer, type, num_rows, num_cols, num_cols) {}

  // An absent optional argument.
  bool absent() const { return data == nullptr && rows == 0 && cols == 0; }
  bool empty() const { return rows == 0 || cols == 0; }
  bool contiguous() const { return row_stride == cols || rows <= 1; }
  int64 elements() const { return rows * cols; }
  int64 bytes() const { return elements() * size_of(dtype); }
  // Bytes from the first element to the end of the last.
  int64 span_bytes() const { return empty() ? 0 : ((rows - 1) * row_stride + cols) * size_of(dtype); }

  View row_range(int64 first, int64 count) const {
    check(first >= 0 && count >= 0 && first + count <= rows, "rows {}+{} of {}", first, count, rows);
    return View(data + first * row_stride * size_of(dtype), dtype, count, cols, row_stride);
  }
  View col_range(int64 first, int64 count) const {
    check(first >= 0 && count >= 0 && first + count <= cols, "columns {}+{} of {}", first, count, cols);
    return View(data + first * size_of(dtype), dtype, rows, count, row_stride);
  }
  // The same contiguous bytes as another shape of the same element count.
  View reshaped(int64 num_rows, int64 num_cols) const {
    check(contiguous() && num_rows * num_cols == elements(), "reshape {}x{} to {}x{}", rows, cols, num_rows, num_cols);
    return View(data, dtype, num_rows, num_cols, num_cols);
  }

  // Typed pointer to the first element of row i. T may be const.
  template <typename T>
  T* row(int64 i) const {
    return reinterpret_cast<T*>(data + i * row_stride * size_of(dtype));
  }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

}  // namespace megatoken
