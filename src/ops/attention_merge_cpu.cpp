#include <cmath>

#include "ops/cpu/elements.h"
#include "ops/cpu/parallel.h"
#include "ops/op_table_cpu.h"

namespace megatoken {
namespace {

// The shares of two partial results in their merge, and its log-sum-exp. A part that saw nothing (-inf) has no share.
struct Shares {
  float kept;
  float added;
  float lse;
};

Shares merge_shares(float kept, float added) {
  const float largest = std::max(kept, added);
  if (largest == -INFINITY) return {1.0f, 0.0f, largest};
  const float a = std::exp(kept - largest);
  const float b = std::exp(added - largest);
  return {a / (a + b), b / (a + b), largest + std::log(a + b)};
}

}  // namespace

void attention_merge_cpu(Stream& stream, const AttentionMerge& op) {
  validate(op);
  with_float_type(op.o_part.dtype, [&](auto type) {
    using T = decltype(type);
    parallel_rows(stream, op.o.rows, op.o.cols, [&](int64 first, int64 last) {
      for (int64 i = first; i < last; ++i) {
        for (int64 head = 0; head < op.heads; ++head) {
          const T* part = op.o_part.row<const T>(i) + head * op.head_dim;
          float* o = op.o.row<float>(i) + head * op.head_dim;
          float& lse = op.lse.row<float>(head)[i];
          const float lse_part = op.lse_part.row<const float>(head)[i];
          if (op.first) {
            for (int64 j = 0; j < op.head_dim; ++j) o[j] = to_float(part[j]);
            lse = lse_part;
            continue;
          }
          const Shares shares = merge_shares(lse, lse_part);
          for (int64 j = 0; j < op.head_dim; ++j) o[j] = o[j] * shares.kept + to_float(part[j]) * shares.added;
          lse = shares.lse;
        }
      }
    });
  });
}

}  // namespace megatoken
