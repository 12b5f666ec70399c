// Every CUDA call is checked: check_cuda(cudaXxx(...), "what it was for").
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace megatoken {

// "out of memory" and the like, with CUDA's own name of the error.
std::string describe(cudaError_t error);
// Throws TrainError "CUDA: <what>: <error>" unless error is cudaSuccess.
void check_cuda(cudaError_t error, const char* what);

}  // namespace megatoken
