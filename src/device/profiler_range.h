// Named ranges of the calling thread for NVIDIA's profilers (NVTX).
#pragma once

#include <string_view>

namespace megatoken {

// From construction to destruction, on one thread, properly nested. Costs nothing unless a profiler is attached; does
// nothing in a build without CUDA.
class ProfilerRange {
 public:
  explicit ProfilerRange(std::string_view name);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace megatoken
