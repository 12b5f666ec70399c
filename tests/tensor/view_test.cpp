#include "tensor/view.h"

#include <gtest/gtest.h>

#include <vector>

namespace megatoken {
namespace {

TEST(View, AddressesRowsByTheirStride) {
  std::vector<float> data(4 * 10);
  const View view(data.data(), DType::f32, 4, 7, 10);
  EXPECT_EQ(view.row<float>(3), data.data() + 30);
  EXPECT_EQ(view.elements(), 28);
  EXPECT_EQ(view.bytes(), 112);
  EXPECT_EQ(view.span_bytes(), (3 * 10 + 7) * 4);
  EXPECT_FALSE(view.contiguous());
  EXPECT_TRUE(view.row_range(2, 1).contiguous());  // one row always is
}

TEST(View, TakesRangesOfRowsAndColumns) {
  std::vector<std::uint16_t> data(4 * 10);
  const View view(data.data(), DType::bf16, 4, 10);
  const View part = view.row_range(1, 2).col_range(3, 5);
  EXPECT_EQ(part.as<std::uint16_t>(), data.data() + 13);
  EXPECT_EQ(part.rows, 2);
  EXPECT_EQ(part.cols, 5);
  EXPECT_EQ(part.row_stride, 10);
  EXPECT_TRUE(view.row_range(4, 0).empty());
  EXPECT_EQ(view.row_range(4, 0).span_bytes(), 0);
  EXPECT_THROW(view.row_range(3, 2), InternalError);
  EXPECT_THROW(view.row_range(-1, 2), InternalError);
  EXPECT_THROW(view.col_range(8, 3), InternalError);
}

TEST(View, ReshapesContiguousBytesOnly) {
  std::vector<float> data(24);
  const View view(data.data(), DType::f32, 4, 6);
  EXPECT_EQ(view.reshaped(3, 8).row<float>(2), data.data() + 16);
  EXPECT_THROW(view.reshaped(5, 5), InternalError);
  EXPECT_THROW(view.col_range(0, 3).reshaped(3, 4), InternalError);
}

TEST(View, OffsetsPass2To31Elements) {
  auto* base = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);  // never dereferenced
  const int64 stride = int64{3} << 30;
  const View view(base, DType::f32, 5, 8, stride);
  EXPECT_EQ(reinterpret_cast<std::byte*>(view.row<float>(4)) - base, 4 * stride * 4);
  EXPECT_EQ(view.span_bytes(), (4 * stride + 8) * 4);
  EXPECT_EQ(view.row_range(3, 2).col_range(7, 1).data - base, (3 * stride + 7) * 4);
}

TEST(View, AbsentIsNotEmpty) {
  EXPECT_TRUE(View().absent());
  std::vector<float> data(1);
  EXPECT_FALSE(View(data.data(), DType::f32, 0, 8).absent());
  EXPECT_TRUE(View(data.data(), DType::f32, 0, 8).empty());
}

}  // namespace
}  // namespace megatoken
