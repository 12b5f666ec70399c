#include "device/profiler_range.h"

#include <nvtx3/nvToolsExt.h>

#include <cstdlib>
#include <string>

namespace megatoken {
namespace {

// Profilers put themselves behind NVTX by this variable; without one, names are not even copied.
bool attached() {
  static const bool value = std::getenv("NVTX_INJECTION64_PATH") != nullptr;
  return value;
}

}  // namespace

ProfilerRange::ProfilerRange(std::string_view name) {
  if (attached()) nvtxRangePushA(std::string(name).c_str());
}

ProfilerRange::~ProfilerRange() {
  if (attached()) nvtxRangePop();
}

}  // namespace megatoken
