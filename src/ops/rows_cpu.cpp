#include <cstring>

#include "ops/cpu/index_check.h"
#include "ops/cpu/parallel.h"
#include "ops/op_table_cpu.h"

namespace megatoken {

void gather_rows_cpu(Stream& stream, const GatherRows& op) {
  validate(op);
  check_indices("gather_rows", op.index, op.x.rows);
  const auto row_bytes = static_cast<std::size_t>(op.y.cols * size_of(op.y.dtype));
  if (row_bytes == 0) return;
  parallel_rows(stream, op.y.rows, op.y.cols, [&](int64 first, int64 last) {
    for (int64 i = first; i < last; ++i)
      std::memcpy(op.y.row<std::byte>(i), op.x.row<std::byte>(*op.index.row<const std::int32_t>(i)), row_bytes);
  });
}

void scatter_rows_cpu(Stream& stream, const ScatterRows& op) {
  validate(op);
  check_indices("scatter_rows", op.index, op.y.rows);
  const auto row_bytes = static_cast<std::size_t>(op.x.cols * size_of(op.x.dtype));
  if (row_bytes == 0) return;
  parallel_rows(stream, op.x.rows, op.x.cols, [&](int64 first, int64 last) {
    for (int64 i = first; i < last; ++i)
      std::memcpy(op.y.row<std::byte>(*op.index.row<const std::int32_t>(i)), op.x.row<std::byte>(i), row_bytes);
  });
}

}  // namespace megatoken
