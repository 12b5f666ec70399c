#include "device/cuda/cuda_error.h"

#include "base/error.h"

namespace megatoken {

std::string describe(cudaError_t error) {
  return std::string(cudaGetErrorString(error)) + " (" + cudaGetErrorName(error) + ")";
}

void check_cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) [[unlikely]]
    throw TrainError("CUDA: {}: {}", what, describe(error));
}

}  // namespace megatoken
