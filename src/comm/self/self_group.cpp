// The group of one rank: every operation is a copy or nothing.
#include <cstring>

#include "comm/abort.h"
#include "comm/group.h"

namespace megatoken {
namespace {

class SelfGroup final : public Group {
 public:
  explicit SelfGroup(std::shared_ptr<AbortState> abort) : abort_(std::move(abort)) {}
  int64 rank() const override { return 0; }
  int64 size() const override { return 1; }

  void all_gather(Stream& stream, const void* in, void* out, int64 bytes) override { move(stream, in, out, bytes); }
  void reduce_scatter(Stream& stream, const float* in, float* out, int64 count) override {
    move(stream, in, out, count * size_of(DType::f32));
  }
  void all_reduce(Stream& /*stream*/, float* /*data*/, int64 count) override { begin(count); }
  void broadcast(Stream& /*stream*/, void* /*data*/, int64 bytes, int64 root) override {
    check(root == 0, "broadcast from rank {} of 1", root);
    begin(bytes);
  }
  void send_receive(Stream& stream, const void* send, int64 to, void* receive, int64 from, int64 bytes) override {
    check(to == 0 && from == 0, "send to rank {} and receive from rank {} of 1", to, from);
    move(stream, send, receive, bytes);
  }

  void all_reduce_host(std::span<double> /*values*/, Reduce /*op*/) override { begin(0); }
  std::vector<std::string> all_gather_host(const std::string& value) override {
    begin(0);
    return {value};
  }
  void barrier() override { begin(0); }
  std::shared_ptr<Group> split(int64 /*color*/) override {
    begin(0);
    return std::make_shared<SelfGroup>(abort_);
  }
  void abort(const std::string& reason) override { abort_->abort(reason); }
  const std::shared_ptr<AbortState>& abort_state() const override { return abort_; }
  int64 bytes_sent() const override { return 0; }

 private:
  void begin(int64 count) const {
    check(count >= 0, "a collective of {} elements", count);
    abort_->check();
  }
  void move(Stream& stream, const void* in, void* out, int64 bytes) const {
    begin(bytes);
    if (bytes > 0 && in != out) stream.copy(out, in, bytes);
  }

  std::shared_ptr<AbortState> abort_;
};

}  // namespace

std::shared_ptr<Group> create_self_group(std::shared_ptr<AbortState> abort) {
  return std::make_shared<SelfGroup>(std::move(abort));
}

}  // namespace megatoken
