// Lets the conformance suite, which works on host memory, run on the groups of any device: stream operations go through
// memory of the device and are done when they return.
#pragma once

#include "comm/group.h"
#include "device/device.h"

namespace megatoken {

class StagingGroup final : public Group {
 public:
  StagingGroup(std::shared_ptr<Group> group, Device& device) : group_(std::move(group)), device_(device) {}
  int64 rank() const override { return group_->rank(); }
  int64 size() const override { return group_->size(); }

  void all_gather(Stream& stream, const void* in, void* out, int64 bytes) override {
    const Staged all(*this, stream, nullptr, out, bytes * size());
    const bool in_place = in == static_cast<std::byte*>(out) + rank() * bytes;
    const Staged own(*this, stream, in, nullptr, in_place ? 0 : bytes);
    std::byte* const part = all.data() + rank() * bytes;
    if (in_place && bytes > 0) stream.copy(part, in, bytes);
    group_->all_gather(stream, in_place ? part : own.data(), all.data(), bytes);
  }
  void reduce_scatter(Stream& stream, const float* in, float* out, int64 count) override {
    const Staged all(*this, stream, in, nullptr, count * size() * 4);
    const bool in_place = out == in + rank() * count;
    float* const part = all.values() + rank() * count;
    const Staged own(*this, stream, nullptr, in_place ? nullptr : out, count * 4);
    group_->reduce_scatter(stream, all.values(), in_place ? part : own.values(), count);
    if (in_place && count > 0) stream.copy(out, part, count * 4);
  }
  void all_reduce(Stream& stream, float* data, int64 count) override {
    const Staged staged(*this, stream, data, data, count * 4);
    group_->all_reduce(stream, staged.values(), count);
  }
  void broadcast(Stream& stream, void* data, int64 bytes, int64 root) override {
    const Staged staged(*this, stream, data, data, bytes);
    group_->broadcast(stream, staged.data(), bytes, root);
  }
  void send_receive(Stream& stream, const void* send, int64 to, void* receive, int64 from, int64 bytes) override {
    const Staged sent(*this, stream, send, nullptr, bytes), received(*this, stream, nullptr, receive, bytes);
    group_->send_receive(stream, sent.data(), to, received.data(), from, bytes);
  }

  void all_reduce_host(std::span<double> values, Reduce op) override { group_->all_reduce_host(values, op); }
  std::vector<std::string> all_gather_host(const std::string& value) override { return group_->all_gather_host(value); }
  void barrier() override { group_->barrier(); }
  std::shared_ptr<Group> split(int64 color) override {
    return std::make_shared<StagingGroup>(group_->split(color), device_);
  }
  void abort(const std::string& reason) override { group_->abort(reason); }
  const std::shared_ptr<AbortState>& abort_state() const override { return group_->abort_state(); }
  int64 bytes_sent() const override { return group_->bytes_sent(); }

 private:
  // Device memory for one operation: `from` (null: nothing) is copied in, and at the end copied back to `to` (null:
  // not).
  class Staged {
   public:
    Staged(StagingGroup& group, Stream& stream, const void* from, void* to, int64 bytes)
        : stream_(stream), memory_(group.device_.allocate(bytes, "staging")), to_(to) {
      if (from != nullptr && bytes > 0) stream.copy(memory_.data(), from, bytes);
    }
    ~Staged() {  // also after an error: the memory must not go while something is queued
      try {
        if (to_ != nullptr && memory_.bytes() > 0) stream_.copy(to_, memory_.data(), memory_.bytes());
        stream_.synchronize();
      } catch (const std::exception&) {
      }
    }
    Staged(const Staged&) = delete;
    Staged& operator=(const Staged&) = delete;
    std::byte* data() const { return memory_.data(); }
    float* values() const { return reinterpret_cast<float*>(memory_.data()); }

   private:
    Stream& stream_;
    Memory memory_;
    void* to_;
  };

  std::shared_ptr<Group> group_;
  Device& device_;
};

}  // namespace megatoken
