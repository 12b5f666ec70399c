#include "ops/cuda/cublaslt.h"

#include <dlfcn.h>

#include "base/error.h"
#include "device/cuda/libraries.h"

namespace megatoken::cuda {
namespace {

template <typename F>
void find(void* library, F& function, const char* name) {
  function = reinterpret_cast<F>(::dlsym(library, name));
  if (function == nullptr) throw FitError("cuBLASLt has no function {}: install the one of CUDA {}", name, CUBLAS_VER_MAJOR);
}

CublasLt load() {
  void* library = cublaslt_library();
  CublasLt f{};
  find(library, f.create, "cublasLtCreate");
  find(library, f.destroy, "cublasLtDestroy");
  find(library, f.matmul, "cublasLtMatmul");
  find(library, f.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(library, f.desc_create, "cublasLtMatmulDescCreate");
  find(library, f.desc_destroy, "cublasLtMatmulDescDestroy");
  find(library, f.desc_set, "cublasLtMatmulDescSetAttribute");
  find(library, f.layout_create, "cublasLtMatrixLayoutCreate");
  find(library, f.layout_destroy, "cublasLtMatrixLayoutDestroy");
  find(library, f.preference_create, "cublasLtMatmulPreferenceCreate");
  find(library, f.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  find(library, f.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  find(library, f.status_string, "cublasLtGetStatusString");
  return f;
}

}  // namespace

const CublasLt& cublaslt() {
  static const CublasLt functions = load();
  return functions;
}

}  // namespace megatoken::cuda
