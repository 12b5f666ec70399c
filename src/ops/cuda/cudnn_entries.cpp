// cuDNN's entry points as cudnn-frontend calls them, each passed on to the library that was opened at run time. With the
// frontend's own dynamic loading it would open a second CUDA runtime, and fail where there is no libcudart.so.
#include <cudnn.h>
#include <dlfcn.h>
#include <nvrtc.h>

#include "base/error.h"
#include "device/cuda/libraries.h"

namespace {

template <typename Function>
Function* entry(const char* name) {
  void* const found = ::dlsym(megatoken::cudnn_library(), name);
  if (found == nullptr) throw megatoken::FitError("cuDNN has no function {}: install cuDNN 9", name);
  return reinterpret_cast<Function*>(found);
}

}  // namespace

// Hidden, so that the opened library doesn't find these instead of its own.
#define MEGATOKEN_PASS_ON(result, name, parameters, arguments)              \
  extern "C" __attribute__((visibility("hidden"))) result name parameters { \
    static auto* const function = entry<decltype(name)>(#name);             \
    return function arguments;                                              \
  }

MEGATOKEN_PASS_ON(size_t, cudnnGetVersion, (), ())
MEGATOKEN_PASS_ON(const char*, cudnnGetErrorString, (cudnnStatus_t status), (status))
MEGATOKEN_PASS_ON(void, cudnnGetLastErrorString, (char* message, size_t size), (message, size))
MEGATOKEN_PASS_ON(cudnnStatus_t, cudnnCreate, (cudnnHandle_t * handle), (handle))
MEGATOKEN_PASS_ON(cudnnStatus_t, cudnnDestroy, (cudnnHandle_t handle), (handle))
MEGATOKEN_PASS_ON(cudnnStatus_t, cudnnSetStream, (cudnnHandle_t handle, cudaStream_t stream), (handle, stream))
MEGATOKEN_PASS_ON(cudnnStatus_t, cudnnGetStream, (cudnnHandle_t handle, cudaStream_t* stream), (handle, stream))
MEGATOKEN_PASS_ON(cudnnStatus_t, cudnnBackendCreateDescriptor,
                  (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor), (type, descriptor))
MEGATOKEN_PASS_ON(cudnnStatus_t, cudnnBackendDestroyDescriptor, (cudnnBackendDescriptor_t descriptor), (descriptor))
MEGATOKEN_PASS_ON(cudnnStatus_t, cudnnBackendFinalize, (cudnnBackendDescriptor_t descriptor), (descriptor))
MEGATOKEN_PASS_ON(cudnnStatus_t, cudnnBackendSetAttribute,
                  (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t attribute,
                   cudnnBackendAttributeType_t type, int64_t count, const void* elements),
                  (descriptor, attribute, type, count, elements))
MEGATOKEN_PASS_ON(cudnnStatus_t, cudnnBackendGetAttribute,
                  (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t attribute,
                   cudnnBackendAttributeType_t type, int64_t room, int64_t* count, void* elements),
                  (descriptor, attribute, type, room, count, elements))
MEGATOKEN_PASS_ON(cudnnStatus_t, cudnnBackendExecute,
                  (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack),
                  (handle, plan, pack))

// The frontend holds an engine of its own for a fused norm, which compiles through NVRTC. No graph here asks for it.
#define MEGATOKEN_REFUSE(name, parameters) \
  extern "C" __attribute__((visibility("hidden"))) nvrtcResult name parameters { return NVRTC_ERROR_INTERNAL_ERROR; }

MEGATOKEN_REFUSE(nvrtcCreateProgram, (nvrtcProgram*, const char*, const char*, int, const char* const*, const char* const*))
MEGATOKEN_REFUSE(nvrtcCompileProgram, (nvrtcProgram, int, const char* const*))
MEGATOKEN_REFUSE(nvrtcDestroyProgram, (nvrtcProgram*))
MEGATOKEN_REFUSE(nvrtcGetProgramLogSize, (nvrtcProgram, size_t*))
MEGATOKEN_REFUSE(nvrtcGetProgramLog, (nvrtcProgram, char*))
MEGATOKEN_REFUSE(nvrtcGetCUBINSize, (nvrtcProgram, size_t*))
MEGATOKEN_REFUSE(nvrtcGetCUBIN, (nvrtcProgram, char*))
