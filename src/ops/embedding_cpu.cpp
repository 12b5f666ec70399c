#include <cstring>

#include "ops/cpu/elements.h"
#include "ops/cpu/index_check.h"
#include "ops/cpu/parallel.h"
#include "ops/op_table_cpu.h"

namespace megatoken {

void embedding_cpu(Stream& stream, const Embedding& op) {
  validate(op);
  check_indices("embedding", op.ids, op.table.rows);
  const auto row_bytes = static_cast<std::size_t>(op.y.cols * size_of(op.y.dtype));
  if (row_bytes == 0) return;
  parallel_rows(stream, op.y.rows, op.y.cols, [&](int64 first, int64 last) {
    for (int64 i = first; i < last; ++i)
      std::memcpy(op.y.row<std::byte>(i), op.table.row<std::byte>(*op.ids.row<const std::int32_t>(i)), row_bytes);
  });
}

// Threads share out the columns, so that every element of the table is summed in token order.
void embedding_backward_cpu(Stream& stream, const EmbeddingBackward& op) {
  validate(op);
  check_indices("embedding_backward", op.ids, op.dtable.rows);
  constexpr int64 kColumns = 64;
  with_float_type(op.dy.dtype, [&](auto type) {
    using T = decltype(type);
    parallel_blocks(stream, ceil_div(op.dy.cols, kColumns), [&](int64 block) {
      const int64 first = block * kColumns;
      const int64 count = std::min(kColumns, op.dy.cols - first);
      for (int64 i = 0; i < op.dy.rows; ++i) {
        const T* dy = op.dy.row<const T>(i) + first;
        float* sum = op.dtable.row<float>(*op.ids.row<const std::int32_t>(i)) + first;
        for (int64 j = 0; j < count; ++j) sum[j] += to_float(dy[j]);
      }
    });
  });
}

}  // namespace megatoken
