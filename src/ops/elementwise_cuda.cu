// Ops that touch each element once: a thread reads and writes packs of eight.
#include "ops/cuda/launch.cuh"
#include "ops/op_table_cuda.h"

namespace megatoken {
namespace {

using namespace cuda;

// y = x, or y += x where kAdd. A bias is x with a stride of 0.
template <typename X, typename Y, bool kAdd>
__global__ void combine_kernel(Rows<const X> x, Rows<Y> y, int64 rows, int64 cols, int64 across) {
  const int64 row = tile_row(across);
  const int64 col = tile_col(across);
  if (row >= rows || col >= cols) return;
  float a[kPack];
  load8(x.row(row) + col, cols - col, x.aligned, a);
  Y* to = y.row(row) + col;
  if constexpr (kAdd) {
    float b[kPack];
    load8(to, cols - col, y.aligned, b);
#pragma unroll
    for (int i = 0; i < kPack; ++i) a[i] += b[i];
  }
  store8(to, cols - col, y.aligned, a);
}

// x, y: contiguous rows may be taken as one.
template <bool kAdd>
void combine(Stream& stream, const char* name, View x, View y) {
  if (y.empty()) return;
  if (x.rows == y.rows && x.contiguous() && y.contiguous() && y.rows > 1) {
    x = x.reshaped(1, x.elements());
    y = y.reshaped(1, y.elements());
  }
  CudaStream& cuda = cuda_stream(stream);
  const Tiles tiles(y.rows, y.cols);
  with_float_type(x.dtype, [&](auto from) {
    with_float_type(y.dtype, [&](auto to) {
      using X = decltype(from);
      using Y = decltype(to);
      Rows<const X> rows = rows_of<const X>(x);
      if (x.rows != y.rows) rows.stride = 0;
      combine_kernel<X, Y, kAdd><<<tiles.grid, tiles.block, 0, cuda.native()>>>(rows, rows_of<Y>(y), tiles.rows,
                                                                               tiles.cols, tiles.across);
    });
  });
  cuda.launched(name);
}

__global__ void zero_rows_kernel(std::byte* data, int64 stride, int64 rows, int64 row_bytes, int64 across) {
  const int64 row = tile_row(across);
  const int64 first = tile_col(across);
  if (row >= rows) return;
  std::byte* p = data + row * stride;
  if (reinterpret_cast<std::uintptr_t>(p) % kPack == 0 && first + kPack <= row_bytes) {
    *reinterpret_cast<uint2*>(p + first) = make_uint2(0, 0);
    return;
  }
  for (int64 i = first; i < min(first + kPack, row_bytes); ++i) p[i] = std::byte{0};
}

}  // namespace

void convert_cuda(Stream& stream, const Convert& op) {
  validate(op);
  combine<false>(stream, "convert", op.x, op.y);
}

void accumulate_cuda(Stream& stream, const Accumulate& op) {
  validate(op);
  combine<true>(stream, "accumulate", op.x, op.y);
}

void add_bias_cuda(Stream& stream, const AddBias& op) {
  validate(op);
  combine<true>(stream, "add_bias", op.bias, op.y);
}

void fill_zero_cuda(Stream& stream, const FillZero& op) {
  validate(op);
  if (op.y.empty()) return;
  if (op.y.contiguous()) {
    stream.fill_zero(op.y.data, op.y.bytes());
    return;
  }
  CudaStream& cuda = cuda_stream(stream);
  const int64 size = size_of(op.y.dtype);
  const Tiles tiles(op.y.rows, op.y.cols * size);
  zero_rows_kernel<<<tiles.grid, tiles.block, 0, cuda.native()>>>(op.y.data, op.y.row_stride * size, tiles.rows,
                                                                  tiles.cols, tiles.across);
  cuda.launched("fill_zero");
}

}  // namespace megatoken
