// What the CUDA ops ask of their stream: the native handle, scratch memory, and state of their own that lives with it.
#pragma once

#include <cuda_runtime_api.h>

#include <exception>
#include <memory>
#include <mutex>
#include <typeindex>
#include <unordered_map>
#include <vector>

#include "device/device.h"

namespace megatoken {

// Events without timing, reused. Thread-safe.
class CudaEventPool {
 public:
  explicit CudaEventPool(int device) : device_(device) {}
  ~CudaEventPool();
  CudaEventPool(const CudaEventPool&) = delete;
  CudaEventPool& operator=(const CudaEventPool&) = delete;
  cudaEvent_t take();
  void give_back(cudaEvent_t event);

 private:
  int device_;
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
};

class CudaStream final : public Stream {
 public:
  // scratch_bytes: device memory for one op at a time, taken here and held until the stream ends.
  CudaStream(int device, std::shared_ptr<CudaEventPool> events, int64 scratch_bytes);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void submit(std::function<void(Stream&)> task) override;
  Event record() override;
  void wait(const Event& event) override;
  void synchronize() override;
  void copy(void* to, const void* from, int64 bytes) override;
  void fill_zero(void* to, int64 bytes) override;
  // Terms in another GPU's memory travel through the scratch.
  void sum(std::span<const float* const> terms, float* out, int64 count) override;
  std::shared_ptr<const TimeMark> mark_time() override;
  DeviceKind kind() const override { return DeviceKind::cuda; }

  cudaStream_t native() const { return stream_; }
  int device() const { return device_; }

  // Scratch of the op that is being enqueued, 256-byte aligned; the next op on this stream overwrites it.
  void* scratch() const { return scratch_; }
  int64 scratch_bytes() const { return scratch_bytes_; }

  // An op has launched its kernels. Throws TrainError naming it when the launch failed, or when something before it has
  // failed meanwhile. op must outlive the stream (a literal).
  void launched(const char* op);

  // The T that belongs to this stream, made by T(CudaStream&) at first use and destroyed before the stream.
  template <typename T>
  T& attached() {
    std::shared_ptr<void>& slot = attached_[std::type_index(typeid(T))];
    if (!slot) slot = std::make_shared<T>(*this);
    return *static_cast<T*>(slot.get());
  }

 private:
  void select_device() const;

  int device_;
  std::shared_ptr<CudaEventPool> events_;
  cudaStream_t stream_ = nullptr;
  void* scratch_ = nullptr;
  int64 scratch_bytes_;
  const char* last_op_ = "nothing";
  std::exception_ptr error_;
  std::unordered_map<std::type_index, std::shared_ptr<void>> attached_;
};

// The stream as a CUDA stream; InternalError for a stream of another device.
CudaStream& cuda_stream(Stream& stream);

}  // namespace megatoken
