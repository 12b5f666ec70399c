// Which attention calls go to cuDNN.
#pragma once

#include <cstdint>

#include "ops/cuda/storage.h"

namespace megatoken::cuda {

// Blocks of at most this many scores go to the plain kernels: cuDNN would compile up to a second for each new shape.
inline constexpr int64 kMostPlainScores = 128 * 128;

inline bool cudnn_takes_view(const View& v) {
  return reinterpret_cast<std::uintptr_t>(v.data) % 16 == 0 && v.row_stride % 8 == 0;
}

// By shape: head dimensions that cuDNN offers; one query alone takes an engine with another workspace.
inline bool cudnn_takes_shape(int64 queries, int64 keys, int64 head_dim) {
  return head_dim % 8 == 0 && head_dim <= 256 && queries > 1 && queries * keys > kMostPlainScores;
}

// A call of at most this many queries and keys is padded to one of few sizes; a longer one has a graph of its own.
inline constexpr int64 kMostPadded = 4096;

// The next of the sizes 128, 160, 192, 224, 256, 320, ...: four to an octave.
inline int64 padded_size(int64 n) {
  if (n <= 128) return 128;
  int64 octave = 128;
  while (octave * 2 < n) octave *= 2;
  return ceil_div(n, octave / 4) * (octave / 4);
}

inline bool to_be_padded(int64 queries, int64 keys) {
  return queries <= kMostPadded && keys <= kMostPadded && (padded_size(queries) != queries || padded_size(keys) != keys);
}

inline constexpr int64 kWorkspaceAlignment = 256;

inline int64 aligned_bytes(int64 bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

// The first aligned byte of a workspace; ops ask for kWorkspaceAlignment bytes more than they use.
inline std::byte* aligned_start(const View& workspace) {
  const auto past = static_cast<int64>(reinterpret_cast<std::uintptr_t>(workspace.data) % kWorkspaceAlignment);
  return workspace.data + (past == 0 ? 0 : kWorkspaceAlignment - past);
}

}  // namespace megatoken::cuda
