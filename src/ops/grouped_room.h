// Room that a grouped product takes on a GPU, known without one. The kernel (grouped_gemm_cuda.cu) and the planner
// share these numbers.
#pragma once

#include "ops/grouped_gemm.h"

namespace megatoken::cuda {

// Offsets of the parts in the op's workspace: what CUTLASS's grouped kernel reads of each group from device memory,
// then its own workspace (tensor maps of every multiprocessor, the tile scheduler).
struct GroupedRoom {
  explicit GroupedRoom(int64 groups);

  int64 total = 0;  // first: the offsets are taken one after the other
  int64 shapes, a, b, d, a_strides, b_strides, d_strides, library;

 private:
  int64 take(int64 bytes);
};

// CUTLASS 4's request on 132 multiprocessors stays below it for every problem; checked before each launch.
inline constexpr int64 kGroupedLibraryBytes = int64{1} << 20;

}  // namespace megatoken::cuda

namespace megatoken {

int64 grouped_gemm_workspace_cuda(const GroupedGemm& op);

}  // namespace megatoken
