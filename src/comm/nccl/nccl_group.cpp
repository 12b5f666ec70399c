// Ranks with a GPU each. Bytes are counted as the other groups count them; NCCL's own algorithms may send more or less.
#include "comm/nccl_group.h"

#include <atomic>

#include "comm/nccl/communicator.h"
#include "comm/nccl/nccl_api.h"
#include "comm/reduction.h"
#include "device/cuda/cuda_stream.h"

namespace megatoken {
namespace {

std::size_t size_cast(int64 count) { return static_cast<std::size_t>(count); }

class NcclGroup final : public Group {
 public:
  NcclGroup(std::shared_ptr<Group> host, int device)
      : host_(std::move(host)), device_(device), communicator_(host_, device) {}
  int64 rank() const override { return host_->rank(); }
  int64 size() const override { return host_->size(); }

  void all_gather(Stream& stream, const void* in, void* out, int64 bytes) override {
    run(stream, "all_gather", bytes, [&](ncclComm_t comm, cudaStream_t on) {
      return nccl().all_gather(in, out, size_cast(bytes), ncclUint8, comm, on);
    });
    sent_ += bytes * (size() - 1);
  }

  void reduce_scatter(Stream& stream, const float* in, float* out, int64 count) override {
    run(stream, "reduce_scatter", count, [&](ncclComm_t comm, cudaStream_t on) {
      return nccl().reduce_scatter(in, out, size_cast(count), ncclFloat32, ncclSum, comm, on);
    });
    sent_ += count * kFloatBytes * (size() - 1);
  }

  void all_reduce(Stream& stream, float* data, int64 count) override {
    run(stream, "all_reduce", count, [&](ncclComm_t comm, cudaStream_t on) {
      return nccl().all_reduce(data, data, size_cast(count), ncclFloat32, ncclSum, comm, on);
    });
    const auto [first, last] = part_of(count, rank(), size());
    sent_ += (count - (last - first)) * kFloatBytes + (last - first) * kFloatBytes * (size() - 1);
  }

  void broadcast(Stream& stream, void* data, int64 bytes, int64 root) override {
    check(root >= 0 && root < size(), "broadcast from rank {} of {}", root, size());
    run(stream, "broadcast", bytes, [&](ncclComm_t comm, cudaStream_t on) {
      return nccl().broadcast(data, data, size_cast(bytes), ncclUint8, static_cast<int>(root), comm, on);
    });
    if (rank() == root) sent_ += bytes * (size() - 1);
  }

  void send_receive(Stream& stream, const void* send, int64 to, void* receive, int64 from, int64 bytes) override {
    check(to >= 0 && to < size() && from >= 0 && from < size(), "send to rank {} and receive from rank {} of {}", to,
          from, size());
    check((to == rank()) == (from == rank()), "rank {} sends to rank {} and receives from rank {}", rank(), to, from);
    if (to == rank()) {
      host_->abort_state()->check();
      check(bytes >= 0, "send_receive of {} bytes", bytes);
      if (bytes > 0 && send != receive) stream.copy(receive, send, bytes);
      return;
    }
    run(stream, "send_receive", bytes, [&](ncclComm_t comm, cudaStream_t on) {
      ncclResult_t result = nccl().group_start();
      if (result != ncclSuccess) return result;
      result = nccl().send(send, size_cast(bytes), ncclUint8, static_cast<int>(to), comm, on);
      if (result == ncclSuccess || result == ncclInProgress)
        result = nccl().recv(receive, size_cast(bytes), ncclUint8, static_cast<int>(from), comm, on);
      const ncclResult_t ended = nccl().group_end();
      return result == ncclSuccess || result == ncclInProgress ? ended : result;
    });
    sent_ += bytes;
  }

  void all_reduce_host(std::span<double> values, Reduce op) override { host_->all_reduce_host(values, op); }
  std::vector<std::string> all_gather_host(const std::string& value) override { return host_->all_gather_host(value); }
  void barrier() override { host_->barrier(); }
  std::shared_ptr<Group> split(int64 color) override {
    return std::make_shared<NcclGroup>(host_->split(color), device_);
  }
  void abort(const std::string& reason) override { host_->abort(reason); }
  const std::shared_ptr<AbortState>& abort_state() const override { return host_->abort_state(); }
  int64 bytes_sent() const override { return sent_; }

 private:
  static constexpr int64 kFloatBytes = size_of(DType::f32);

  template <typename Enqueue>
  void run(Stream& stream, const char* what, int64 count, const Enqueue& enqueue) {
    check(count >= 0, "{} of {} elements", what, count);
    CudaStream& on = cuda_stream(stream);
    check(on.device() == device_, "{} on device {} of a group on device {}", what, on.device(), device_);
    if (count == 0) return host_->abort_state()->check();
    communicator_.call(what, [&](ncclComm_t comm) { return enqueue(comm, on.native()); });
  }

  const std::shared_ptr<Group> host_;
  const int device_;
  Communicator communicator_;
  std::atomic<int64> sent_ = 0;
};

}  // namespace

std::shared_ptr<Group> create_nccl_group(std::shared_ptr<Group> host, const Device& device) {
  check(device.kind() == DeviceKind::cuda, "NCCL between devices of another kind");
  return std::make_shared<NcclGroup>(std::move(host), device.index());
}

}  // namespace megatoken
