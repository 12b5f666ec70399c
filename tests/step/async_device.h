// The CPU device with a compute stream of its own thread: the host runs ahead of compute, as it does on a GPU.
#pragma once

#include "device/device.h"

namespace megatoken::testing_step {

class AsyncDevice final : public Device {
 public:
  DeviceKind kind() const override { return device_->kind(); }
  std::string name() const override { return device_->name(); }
  int index() const override { return device_->index(); }
  std::string hardware_id() const override { return device_->hardware_id(); }
  Memory allocate(int64 bytes, const std::string& what) override { return device_->allocate(bytes, what); }
  Memory allocate_host(int64 bytes, const std::string& what) override { return device_->allocate_host(bytes, what); }
  std::unique_ptr<Stream> create_stream(StreamMode /*mode*/) override {
    return device_->create_stream(StreamMode::own_thread);
  }

 private:
  std::unique_ptr<Device> device_ = create_cpu_device(1);
};

}  // namespace megatoken::testing_step
