#include <cuda_runtime_api.h>

#include <algorithm>

#include "base/byte_text.h"
#include "base/error.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_fixed_bytes.h"
#include "device/cuda/cuda_stream.h"
#include "device/cuda/kernel_image.h"
#include "device/cuda/libraries.h"
#include "device/cuda/pinned_memory.h"

namespace megatoken {
namespace {

std::string hex(const cudaUUID_t& uuid) {
  std::string text;
  for (const char byte : uuid.bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

class CudaDevice final : public Device {
 public:
  CudaDevice(int index, const cudaDeviceProp& properties)
      : index_(index),
        name_(properties.name),
        hardware_id_(hex(properties.uuid)),
        events_(std::make_shared<CudaEventPool>(index)) {}
  DeviceKind kind() const override { return DeviceKind::cuda; }
  std::string name() const override { return name_; }
  int index() const override { return index_; }
  std::string hardware_id() const override { return hardware_id_; }

  Memory allocate(int64 bytes, const std::string& what) override {
    check(bytes >= 0, "{}: allocation of {} bytes", what, bytes);
    if (bytes == 0) return Memory();
    select();
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, static_cast<std::size_t>(bytes));
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      std::size_t free = 0, total = 0;
      cudaMemGetInfo(&free, &total);
      throw FitError(
          "not enough memory on {} (CUDA device {}) for {}: {:.2f} GiB asked for, {:.2f} of {:.2f} GiB are free", name_,
          index_, what, gib(bytes), gib(static_cast<int64>(free)), gib(static_cast<int64>(total)));
    }
    check_cuda(error, what.c_str());
    return Memory(data, bytes, [index = index_](void* p) {
      cudaSetDevice(index);
      cudaFree(p);
    });
  }

  Memory allocate_host(int64 bytes, const std::string& what) override {
    select();
    return allocate_pinned(bytes, what);
  }

  std::unique_ptr<Stream> create_stream(StreamMode mode) override {
    return std::make_unique<CudaStream>(index_, events_, cuda_scratch_bytes(mode));
  }

 private:
  void select() const { check_cuda(cudaSetDevice(index_), "selecting the device"); }

  int index_;
  std::string name_, hardware_id_;
  std::shared_ptr<CudaEventPool> events_;
};

// Why there is no device to be had.
std::string absence(cudaError_t error) {
  int driver = 0;
  cudaDriverGetVersion(&driver);
  if (driver == 0) return "no NVIDIA driver is installed (or not visible in this container: run it with --gpus all)";
  if (error == cudaErrorInsufficientDriver)
    return fmt::format("the NVIDIA driver is too old: it knows CUDA {}.{}, this program needs {}.{}", driver / 1000,
                       driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  return describe(error);
}

}  // namespace

int cuda_device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return count;
}

int64 cuda_usable_bytes(int index) {
  std::size_t free = 0, total = 0;
  if (cudaSetDevice(index) != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return std::min(static_cast<int64>(free) + kCudaContextBytes, static_cast<int64>(total));
}

std::unique_ptr<Device> create_cuda_device(int index) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    cudaGetLastError();
    throw FitError("no CUDA device: {}; or set device: cpu",
                   error != cudaSuccess ? absence(error) : "the driver shows none (CUDA_VISIBLE_DEVICES?)");
  }
  if (index < 0 || index >= count)
    throw FitError("CUDA device {} was asked for, and there are {}: 0 to {}", index, count, count - 1);
  cublaslt_library();
  cudnn_library();
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, index), "reading the device's properties");
  const cudaError_t selected = cudaSetDevice(index);
  if (selected != cudaSuccess) {
    cudaGetLastError();
    throw FitError("CUDA device {} ({}) can't be used: {}", index, properties.name, describe(selected));
  }
  const cudaError_t image = find_kernel_image();
  if (image != cudaSuccess) {
    cudaGetLastError();
    throw FitError(
        "this program has no kernels for {} (sm_{}{}): {}; build it with that architecture in "
        "MEGATOKEN_CUDA_ARCHITECTURES",
        properties.name, properties.major, properties.minor, describe(image));
  }
  return std::make_unique<CudaDevice>(index, properties);
}

}  // namespace megatoken
