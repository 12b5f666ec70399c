// Runs a step one op after the other, every lifetime in memory of its own: what any execution must agree with.
#pragma once

#include <map>
#include <vector>

#include "device/device.h"
#include "step/bookkeeping.h"
#include "step/step_context.h"

namespace megatoken::testing_step {

class ReferenceContext final : public StepContext {
 public:
  explicit ReferenceContext(Device& device) : stream_(device.create_stream(StreamMode::in_order_inline)) {}
  bool executing() const override { return true; }

 private:
  std::byte* begin_lifetime(LiveBuffer& buffer) override {
    auto& memory = memory_[buffer.id];
    memory.resize(static_cast<std::size_t>(buffer.bytes + 16), std::byte{0xFF});
    return memory.data();
  }
  void end_lifetime(LiveBuffer& buffer) override { memory_.erase(buffer.id); }
  std::byte* begin_external(LiveBuffer&, std::byte* data) override { return data; }
  void perform(const Operation&, Kernel kernel) override { stream_->submit(std::move(kernel)); }
  void join(const Ticket&, std::string_view) override {}
  void drain() override { stream_->synchronize(); }
  void forget() override { memory_.clear(); }

  std::unique_ptr<Stream> stream_;
  std::map<int64, std::vector<std::byte>> memory_;
};

}  // namespace megatoken::testing_step
