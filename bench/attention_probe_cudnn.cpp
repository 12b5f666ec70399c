// The entry points of cuDNN that cudnn-frontend calls, forwarded to the library that is opened at run time. The
// frontend is built as if it were linked with cuDNN, so its CUDA runtime calls go to the static runtime; with its own
// NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING it would open a second runtime, libcudart.so, and fail where there is none.
#include <cudnn.h>
#include <dlfcn.h>
#include <nvrtc.h>

#include <stdexcept>
#include <string>

#include "attention_probe_graph.h"

namespace megatoken::probe {

namespace {

void* library = nullptr;

template <class Function>
Function* entry(const char* name) {
  void* found = library ? dlsym(library, name) : nullptr;
  if (!found) throw std::runtime_error(std::string("cuDNN has no ") + name);
  return reinterpret_cast<Function*>(found);
}

}  // namespace

void open_cudnn() {
  if (library) return;
  library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(std::string("cuDNN 9 cannot be opened: ") + dlerror());
}

}  // namespace megatoken::probe

// Hidden, so that the opened library never finds these in place of its own functions.
#define FORWARD(result, name, parameters, arguments)                              \
  extern "C" __attribute__((visibility("hidden"))) result name parameters {       \
    static auto* const function = megatoken::probe::entry<decltype(name)>(#name); \
    return function arguments;                                                    \
  }

FORWARD(size_t, cudnnGetVersion, (), ())
FORWARD(const char*, cudnnGetErrorString, (cudnnStatus_t status), (status))
FORWARD(void, cudnnGetLastErrorString, (char* message, size_t size), (message, size))
FORWARD(cudnnStatus_t, cudnnCreate, (cudnnHandle_t * handle), (handle))
FORWARD(cudnnStatus_t, cudnnDestroy, (cudnnHandle_t handle), (handle))
FORWARD(cudnnStatus_t, cudnnSetStream, (cudnnHandle_t handle, cudaStream_t stream), (handle, stream))
FORWARD(cudnnStatus_t, cudnnGetStream, (cudnnHandle_t handle, cudaStream_t* stream), (handle, stream))
FORWARD(cudnnStatus_t, cudnnBackendCreateDescriptor,
        (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor), (type, descriptor))
FORWARD(cudnnStatus_t, cudnnBackendDestroyDescriptor, (cudnnBackendDescriptor_t descriptor), (descriptor))
FORWARD(cudnnStatus_t, cudnnBackendFinalize, (cudnnBackendDescriptor_t descriptor), (descriptor))
FORWARD(cudnnStatus_t, cudnnBackendSetAttribute,
        (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
         int64_t count, const void* elements),
        (descriptor, name, type, count, elements))
FORWARD(cudnnStatus_t, cudnnBackendGetAttribute,
        (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
         int64_t wanted, int64_t* count, void* elements),
        (descriptor, name, type, wanted, count, elements))
FORWARD(cudnnStatus_t, cudnnBackendExecute,
        (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack), (handle, plan, pack))

#if CUDNN_VERSION >= 92300
FORWARD(cudnnStatus_t, cudnnGetExecutionPlanWorkspaceSize,
        (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack, size_t* bytes),
        (handle, plan, pack, bytes))
#endif

// What no graph here asks for is refused: the frontend's helpers for convolution filters (referenced only by builds
// without optimization) and an engine of its own for a fused norm, which compiles through NVRTC.
#define REFUSE(result, code, name, parameters) \
  extern "C" __attribute__((visibility("hidden"))) result name parameters { return code; }
#define REFUSE_CUDNN(name, parameters) REFUSE(cudnnStatus_t, CUDNN_STATUS_NOT_SUPPORTED, name, parameters)
#define REFUSE_NVRTC(name, parameters) REFUSE(nvrtcResult, NVRTC_ERROR_INTERNAL_ERROR, name, parameters)

REFUSE_CUDNN(cudnnCreateFilterDescriptor, (cudnnFilterDescriptor_t*))
REFUSE_CUDNN(cudnnDestroyFilterDescriptor, (cudnnFilterDescriptor_t))
REFUSE_CUDNN(cudnnSetFilterNdDescriptor,
             (cudnnFilterDescriptor_t, cudnnDataType_t, cudnnTensorFormat_t, int, const int[]))
REFUSE_CUDNN(cudnnReorderFilterAndBias, (cudnnHandle_t, const cudnnFilterDescriptor_t, cudnnReorderType_t, const void*,
                                         void*, int, const void*, void*))

REFUSE_NVRTC(nvrtcCreateProgram, (nvrtcProgram*, const char*, const char*, int, const char* const*, const char* const*))
REFUSE_NVRTC(nvrtcCompileProgram, (nvrtcProgram, int, const char* const*))
REFUSE_NVRTC(nvrtcDestroyProgram, (nvrtcProgram*))
REFUSE_NVRTC(nvrtcGetProgramLogSize, (nvrtcProgram, size_t*))
REFUSE_NVRTC(nvrtcGetProgramLog, (nvrtcProgram, char*))
REFUSE_NVRTC(nvrtcGetCUBINSize, (nvrtcProgram, size_t*))
REFUSE_NVRTC(nvrtcGetCUBIN, (nvrtcProgram, char*))
