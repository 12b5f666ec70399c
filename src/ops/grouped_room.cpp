#include "ops/grouped_room.h"

namespace megatoken::cuda {

GroupedRoom::GroupedRoom(int64 groups)
    : shapes(take(groups * 12)),
      a(take(groups * 8)),
      b(take(groups * 8)),
      d(take(groups * 8)),
      a_strides(take(groups * 8)),
      b_strides(take(groups * 8)),
      d_strides(take(groups * 8)),
      library(take(kGroupedLibraryBytes)) {}

int64 GroupedRoom::take(int64 bytes) {
  constexpr int64 kAlignment = 256;
  const int64 offset = total;
  total += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

}  // namespace megatoken::cuda

namespace megatoken {

int64 grouped_gemm_workspace_cuda(const GroupedGemm& op) { return cuda::GroupedRoom(op.groups()).total; }

}  // namespace megatoken
