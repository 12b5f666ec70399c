// One rank's part of a group whose other ranks are not there: what they would send is copied from this rank's own
// memory.
#include <algorithm>

#include "comm/abort.h"
#include "comm/group.h"

namespace megatoken {
namespace {

class LoopbackGroup final : public Group {
 public:
  LoopbackGroup(int64 rank, int64 size) : rank_(rank), size_(size), abort_(std::make_shared<AbortState>()) {
    check(size >= 1 && rank >= 0 && rank < size, "rank {} of {}", rank, size);
  }
  int64 rank() const override { return rank_; }
  int64 size() const override { return size_; }

  void all_gather(Stream& stream, const void* in, void* out, int64 bytes) override {
    for (int64 r = 0; r < size_; ++r) move(stream, in, static_cast<std::byte*>(out) + r * bytes, bytes);
    sent_ += (size_ - 1) * bytes;
  }
  void reduce_scatter(Stream& stream, const float* in, float* out, int64 count) override {
    // The own part last: it stands for the sum.
    for (int64 r = 1; r <= size_; ++r) move(stream, in + (rank_ + r) % size_ * count, out, count * 4);
    sent_ += (size_ - 1) * count * 4;
  }
  void all_reduce(Stream& /*stream*/, float* /*data*/, int64 count) override { sent_ += (size_ - 1) * count * 4; }
  void broadcast(Stream& /*stream*/, void* /*data*/, int64 bytes, int64 root) override {
    if (root == rank_) sent_ += (size_ - 1) * bytes;
  }
  void send_receive(Stream& stream, const void* send, int64 to, void* receive, int64 from, int64 bytes) override {
    check(to >= 0 && to < size_ && from >= 0 && from < size_, "send to {} and receive from {} of {}", to, from, size_);
    move(stream, send, receive, bytes);
    sent_ += bytes;
  }

  void all_reduce_host(std::span<double> /*values*/, Reduce /*op*/) override {}
  std::vector<std::string> all_gather_host(const std::string& value) override {
    return std::vector<std::string>(static_cast<std::size_t>(size_), value);
  }
  void barrier() override {}
  std::shared_ptr<Group> split(int64 /*color*/) override {
    throw InternalError("a loopback group has no other ranks to split with");
  }
  void abort(const std::string& reason) override { abort_->abort(reason); }
  const std::shared_ptr<AbortState>& abort_state() const override { return abort_; }
  int64 bytes_sent() const override { return sent_; }

 private:
  static void move(Stream& stream, const void* in, void* out, int64 bytes) {
    if (bytes > 0 && in != out) stream.copy(out, in, bytes);
  }

  int64 rank_, size_;
  int64 sent_ = 0;
  std::shared_ptr<AbortState> abort_;
};

}  // namespace

std::shared_ptr<Group> create_loopback_group(int64 rank, int64 size) {
  return std::make_shared<LoopbackGroup>(rank, size);
}

}  // namespace megatoken
