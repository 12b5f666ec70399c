#include <cstring>
#include <vector>

#include "ops/cpu/elements.h"
#include "ops/cpu/parallel.h"
#include "ops/op_table_cpu.h"

namespace megatoken {

void convert_cpu(Stream& stream, const Convert& op) {
  validate(op);
  with_float_type(op.x.dtype, [&](auto from) {
    with_float_type(op.y.dtype, [&](auto to) {
      parallel_pieces(stream, op.x.rows, op.x.cols, [&](int64 row, int64 first, int64 last) {
        const auto* x = op.x.row<const decltype(from)>(row);
        auto* y = op.y.row<decltype(to)>(row);
        if constexpr (std::is_same_v<decltype(from), decltype(to)>) {
          std::memmove(y + first, x + first, static_cast<std::size_t>(last - first) * sizeof(from));
        } else {
          for (int64 j = first; j < last; ++j) y[j] = from_float<decltype(to)>(to_float(x[j]));
        }
      });
    });
  });
}

void accumulate_cpu(Stream& stream, const Accumulate& op) {
  validate(op);
  with_float_type(op.x.dtype, [&](auto from) {
    with_float_type(op.y.dtype, [&](auto to) {
      parallel_pieces(stream, op.x.rows, op.x.cols, [&](int64 row, int64 first, int64 last) {
        const auto* x = op.x.row<const decltype(from)>(row);
        auto* y = op.y.row<decltype(to)>(row);
        for (int64 j = first; j < last; ++j) y[j] = from_float<decltype(to)>(to_float(y[j]) + to_float(x[j]));
      });
    });
  });
}

void add_bias_cpu(Stream& stream, const AddBias& op) {
  validate(op);
  with_float_type(op.bias.dtype, [&](auto from) {
    with_float_type(op.y.dtype, [&](auto to) {
      const auto* bias = op.bias.as<const decltype(from)>();
      parallel_pieces(stream, op.y.rows, op.y.cols, [&](int64 row, int64 first, int64 last) {
        auto* y = op.y.row<decltype(to)>(row);
        for (int64 j = first; j < last; ++j) y[j] = from_float<decltype(to)>(to_float(y[j]) + to_float(bias[j]));
      });
    });
  });
}

void bias_gradient_cpu(Stream& stream, const BiasGradient& op) {
  validate(op);
  if (op.dy.empty()) return;
  with_float_type(op.dy.dtype, [&](auto type) {
    using T = decltype(type);
    const int64 n = op.dy.cols;
    const RowChunks chunks(op.dy.rows);
    std::vector<float> partial(static_cast<std::size_t>(chunks.count() * n));
    parallel_blocks(stream, chunks.count(), [&](int64 chunk) {
      float* sum = partial.data() + chunk * n;
      for (int64 i = chunks.first(chunk); i < chunks.last(chunk); ++i) {
        const T* dy = op.dy.row<const T>(i);
        for (int64 j = 0; j < n; ++j) sum[j] += to_float(dy[j]);
      }
    });
    for (int64 j = 0; j < n; ++j) {
      float sum = 0;
      for (int64 chunk = 0; chunk < chunks.count(); ++chunk) sum += partial[static_cast<std::size_t>(chunk * n + j)];
      op.dbias.as<float>()[j] += sum;
    }
  });
}

void fill_zero_cpu(Stream& stream, const FillZero& op) {
  validate(op);
  const int64 size = size_of(op.y.dtype);
  parallel_pieces(stream, op.y.rows, op.y.cols, [&](int64 row, int64 first, int64 last) {
    std::memset(op.y.row<std::byte>(row) + first * size, 0, static_cast<std::size_t>((last - first) * size));
  });
}

void sum_squares_cpu(Stream& stream, const SumSquares& op) {
  validate(op);
  constexpr int64 kChunk = 65536;
  const float* x = op.x.as<const float>();
  std::vector<double> partial(static_cast<std::size_t>(ceil_div(op.x.cols, kChunk)));
  parallel_blocks(stream, static_cast<int64>(partial.size()), [&](int64 chunk) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64 i = chunk * kChunk; i < std::min(op.x.cols, (chunk + 1) * kChunk); ++i)
      sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    partial[static_cast<std::size_t>(chunk)] = sum;
  });
  double total = 0;
  for (const double sum : partial) total += sum;
  *op.result.as<double>() += total;
}

}  // namespace megatoken
