// Stands in for device/cuda in a build without CUDA.
#include "base/error.h"
#include "device/device.h"

namespace megatoken {

std::unique_ptr<Device> create_cuda_device(int /*index*/) {
  throw FitError("this megatoken was built without CUDA: build it with a CUDA toolkit, or set device: cpu");
}

int cuda_device_count() { return 0; }
int64 cuda_usable_bytes(int /*index*/) { return 0; }

}  // namespace megatoken
