// CUDA libraries that are opened at run time, so that the program starts where they are not installed.
#pragma once

namespace megatoken {

// Handles for dlsym, opened once per process. Looked for by the loader (LD_LIBRARY_PATH, ldconfig), then in
// $CUDA_HOME/lib64 and /usr/local/cuda/lib64, then in the Python wheels (nvidia-cublas, nvidia-cudnn, nvidia-nccl) of
// the first python3 in PATH and of $VIRTUAL_ENV. FitError naming the library and how to get it when it is nowhere.
void* cublaslt_library();
void* cudnn_library();
void* nccl_library();

}  // namespace megatoken
