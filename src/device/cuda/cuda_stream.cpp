#include "device/cuda/cuda_stream.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/sum_kernel.h"

namespace megatoken {
namespace {

class CudaEvent final : public Event::State {
 public:
  explicit CudaEvent(std::shared_ptr<CudaEventPool> pool) : pool_(std::move(pool)), event_(pool_->take()) {}
  ~CudaEvent() override { pool_->give_back(event_); }
  cudaEvent_t native() const { return event_; }

 private:
  std::shared_ptr<CudaEventPool> pool_;
  cudaEvent_t event_;
};

class CudaTimeMark final : public TimeMark {
 public:
  explicit CudaTimeMark(cudaStream_t stream) {
    check_cuda(cudaEventCreate(&event_), "creating an event");
    check_cuda(cudaEventRecord(event_, stream), "recording an event");
  }
  ~CudaTimeMark() override { cudaEventDestroy(event_); }
  CudaTimeMark(const CudaTimeMark&) = delete;
  CudaTimeMark& operator=(const CudaTimeMark&) = delete;
  double ns_since(const TimeMark& earlier) const override {
    const auto* other = dynamic_cast<const CudaTimeMark*>(&earlier);
    check(other != nullptr, "marks of different devices have no distance");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, other->event_, event_), "reading the time between events");
    return 1e6 * static_cast<double>(ms);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// Whether kernels of `device` should not read there: another GPU's memory.
bool is_away(const void* data, int device) {
  cudaPointerAttributes attributes{};
  check_cuda(cudaPointerGetAttributes(&attributes, data), "asking where memory is");
  check(attributes.type != cudaMemoryTypeUnregistered, "a CUDA sum of host memory that isn't pinned");
  return attributes.type == cudaMemoryTypeDevice && attributes.device != device;
}

}  // namespace

CudaEventPool::~CudaEventPool() {
  cudaSetDevice(device_);
  for (cudaEvent_t event : free_) cudaEventDestroy(event);
}

cudaEvent_t CudaEventPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      cudaEvent_t event = free_.back();
      free_.pop_back();
      return event;
    }
  }
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event");
  return event;
}

// A stream that was told to wait for the event keeps the point it stood for, so it may be recorded anew at once.
void CudaEventPool::give_back(cudaEvent_t event) {
  const std::lock_guard lock(mutex_);
  free_.push_back(event);
}

CudaStream::CudaStream(int device, std::shared_ptr<CudaEventPool> events, int64 scratch_bytes)
    : device_(device), events_(std::move(events)), scratch_bytes_(scratch_bytes) {
  select_device();
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
  const cudaError_t error = cudaMalloc(&scratch_, static_cast<std::size_t>(scratch_bytes));
  if (error != cudaSuccess) {
    cudaGetLastError();
    cudaStreamDestroy(stream_);
    throw FitError("CUDA device {}: no {} bytes of device memory for a stream's scratch: {}", device, scratch_bytes,
                   describe(error));
  }
}

CudaStream::~CudaStream() {
  cudaSetDevice(device_);
  cudaStreamSynchronize(stream_);
  attached_.clear();
  cudaFree(scratch_);
  cudaStreamDestroy(stream_);
}

void CudaStream::select_device() const { check_cuda(cudaSetDevice(device_), "selecting the device"); }

void CudaStream::submit(std::function<void(Stream&)> task) {
  if (error_) return;
  try {
    select_device();
    task(*this);
  } catch (...) {
    error_ = std::current_exception();
  }
}

Event CudaStream::record() {
  select_device();
  auto event = std::make_shared<CudaEvent>(events_);
  check_cuda(cudaEventRecord(event->native(), stream_), "recording an event");
  return Event(std::move(event));
}

void CudaStream::wait(const Event& event) {
  if (event.state() == nullptr) return;
  const auto* state = dynamic_cast<const CudaEvent*>(event.state());
  check(state != nullptr, "a CUDA stream can wait for CUDA events only");
  select_device();
  check_cuda(cudaStreamWaitEvent(stream_, state->native(), 0), "waiting for an event");
}

void CudaStream::synchronize() {
  const cudaError_t status =
      cudaSetDevice(device_) == cudaSuccess ? cudaStreamSynchronize(stream_) : cudaGetLastError();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  if (status != cudaSuccess)
    throw TrainError("CUDA: {}, noticed after op {}: run with CUDA_LAUNCH_BLOCKING=1 to learn which op it was",
                     describe(status), last_op_);
}

void CudaStream::copy(void* to, const void* from, int64 bytes) {
  check(bytes >= 0, "copy of {} bytes", bytes);
  if (bytes > 0)
    check_cuda(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream_), "copy");
}

void CudaStream::fill_zero(void* to, int64 bytes) {
  check(bytes >= 0, "fill of {} bytes", bytes);
  if (bytes > 0) check_cuda(cudaMemsetAsync(to, 0, static_cast<std::size_t>(bytes), stream_), "fill with zero");
}

void CudaStream::sum(std::span<const float* const> terms, float* out, int64 count) {
  check(!terms.empty() && std::ssize(terms) <= kMaxTerms && count >= 0, "sum of {} terms of {} elements", terms.size(),
        count);
  std::vector<std::size_t> away;
  for (std::size_t t = 0; t < terms.size(); ++t)
    if (count > 0 && is_away(terms[t], device_)) away.push_back(t);
  // Slots of the scratch, one a term that is away, aligned for wide loads.
  const int64 slot = away.empty() ? count : scratch_bytes_ / std::ssize(away) / 256 * 256 / size_of(DType::f32);
  std::array<const float*, kMaxTerms> piece;
  for (int64 begin = 0; begin < count; begin += slot) {
    const int64 n = std::min(slot, count - begin);
    for (std::size_t t = 0; t < terms.size(); ++t) piece[t] = terms[t] + begin;
    for (std::size_t a = 0; a < away.size(); ++a) {
      float* const here = static_cast<float*>(scratch_) + static_cast<int64>(a) * slot;
      copy(here, piece[away[a]], n * size_of(DType::f32));
      piece[away[a]] = here;
    }
    launch_sum(stream_, std::span(piece.data(), terms.size()), out + begin, n);
    launched("sum");
  }
}

std::shared_ptr<const TimeMark> CudaStream::mark_time() {
  select_device();
  return std::make_shared<CudaTimeMark>(stream_);
}

void CudaStream::launched(const char* op) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) [[unlikely]]
    throw TrainError("CUDA: op {} (the one before: {}): {}", op, last_op_, describe(error));
  last_op_ = op;
}

CudaStream& cuda_stream(Stream& stream) {
  auto* cuda = dynamic_cast<CudaStream*>(&stream);
  check(cuda != nullptr, "a CUDA op was called on a stream of another device");
  return *cuda;
}

}  // namespace megatoken
