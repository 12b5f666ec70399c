// Room that a grouped product takes on a GPU, known without one: the planner asks for it too.
#pragma once

#include "ops/grouped_gemm.h"

namespace megatoken {

// Bytes of the op's workspace. The plain kernels need none.
int64 grouped_gemm_workspace_cuda(const GroupedGemm& op);

}  // namespace megatoken
