// What the CUDA attention kernels ask of their views.
#pragma once

#include <cstdint>

#include "ops/attention_room.h"
#include "ops/cuda/storage.h"

namespace megatoken::cuda {

inline bool cudnn_takes_view(const View& v) {
  return reinterpret_cast<std::uintptr_t>(v.data) % 16 == 0 && v.row_stride % 8 == 0;
}

// The first aligned byte of a workspace; ops ask for kWorkspaceAlignment bytes more than they use.
inline std::byte* aligned_start(const View& workspace) {
  const auto past = static_cast<int64>(reinterpret_cast<std::uintptr_t>(workspace.data) % kWorkspaceAlignment);
  return workspace.data + (past == 0 ? 0 : kWorkspaceAlignment - past);
}

}  // namespace megatoken::cuda
