// Stands in for device/cuda in a build without CUDA.
#include "device/profiler_range.h"

namespace megatoken {

ProfilerRange::ProfilerRange(std::string_view /*name*/) {}
ProfilerRange::~ProfilerRange() {}

}  // namespace megatoken
