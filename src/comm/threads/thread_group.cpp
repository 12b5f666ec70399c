// Ranks as threads of one process. A collective is a meeting (meeting.h) at which every rank does its share on the
// others' memory. Operations of streams and of the host meet apart: they come from different threads of a rank.
//
// On a CPU stream the share is done within the meeting. On a CUDA stream it is queued there, between two events: it
// starts when every rank's values are ready, and what any rank's stream does afterwards starts when every share is
// done. All events are recorded before anything waits for them, so streams never wait in a circle.
#include <algorithm>
#include <atomic>

#include "comm/group.h"
#include "comm/reduction.h"
#include "comm/threads/meeting.h"

namespace megatoken {
namespace {

struct Shared {
  Shared(int64 ranks, std::shared_ptr<AbortState> state, std::chrono::milliseconds limit)
      : size(ranks),
        abort(std::move(state)),
        timeout(limit),
        done(static_cast<std::size_t>(ranks)),
        streams(std::make_shared<Meeting>(ranks, abort, limit)),
        host(std::make_shared<Meeting>(ranks, abort, limit)) {
    streams->listen();
    host->listen();
  }
  const int64 size;
  const std::shared_ptr<AbortState> abort;
  const std::chrono::milliseconds timeout;
  // Each rank's share of the last stream operation: written within its meeting, read by all between two meetings.
  std::vector<Event> done;
  const std::shared_ptr<Meeting> streams;
  const std::shared_ptr<Meeting> host;
};

class ThreadGroup final : public Group {
 public:
  ThreadGroup(std::shared_ptr<Shared> shared, int64 rank) : shared_(std::move(shared)), rank_(rank) {}
  ~ThreadGroup() override {
    shared_->streams->leave(rank_);
    shared_->host->leave(rank_);
  }
  int64 rank() const override { return rank_; }
  int64 size() const override { return shared_->size; }

  void all_gather(Stream& stream, const void* in, void* out, int64 bytes) override {
    on_stream(stream, {.operation = "all_gather", .size = bytes, .in = in}, [&](const std::vector<Post>& posts) {
      for (int64 r = 0; r < size(); ++r) copy(stream, static_cast<std::byte*>(out) + r * bytes, posts[at(r)].in, bytes);
    });
    sent_ += bytes * (size() - 1);
  }

  void reduce_scatter(Stream& stream, const float* in, float* out, int64 count) override {
    on_stream(stream, {.operation = "reduce_scatter", .size = count, .in = in}, [&](const std::vector<Post>& posts) {
      std::vector<const float*> terms;
      for (const Post& post : posts) terms.push_back(static_cast<const float*>(post.in) + rank_ * count);
      if (count > 0) stream.sum(terms, out, count);
    });
    sent_ += count * kFloatBytes * (size() - 1);
  }

  void all_reduce(Stream& stream, float* data, int64 count) override {
    const auto [first, last] = part_of(count, rank_, size());
    on_stream(stream, {.operation = "all_reduce", .size = count, .out = data},
              [&, begin = first, n = last - first](const std::vector<Post>& posts) {
                // These elements of every rank are read and written by this rank alone.
                std::vector<const float*> terms;
                for (const Post& post : posts) terms.push_back(static_cast<const float*>(post.out) + begin);
                if (n > 0) stream.sum(terms, data + begin, n);
                for (const Post& post : posts)
                  copy(stream, static_cast<float*>(post.out) + begin, data + begin, n * kFloatBytes);
              });
    // What a reduce-scatter and an all-gather of these parts send.
    sent_ += (count - (last - first)) * kFloatBytes + (last - first) * kFloatBytes * (size() - 1);
  }

  void broadcast(Stream& stream, void* data, int64 bytes, int64 root) override {
    check(root >= 0 && root < size(), "broadcast from rank {} of {}", root, size());
    on_stream(stream, {.operation = "broadcast", .size = bytes, .argument = root, .in = data},
              [&](const std::vector<Post>& posts) {
                if (rank_ != root) copy(stream, data, posts[at(root)].in, bytes);
              });
    if (rank_ == root) sent_ += bytes * (size() - 1);
  }

  void send_receive(Stream& stream, const void* send, int64 to, void* receive, int64 from, int64 bytes) override {
    check(to >= 0 && to < size() && from >= 0 && from < size(), "send to rank {} and receive from rank {} of {}", to,
          from, size());
    on_stream(stream, {.operation = "send_receive", .size = bytes, .in = send, .peer = to},
              [&](const std::vector<Post>& posts) {
                check(posts[at(from)].peer == rank_, "rank {} receives from rank {}, which sends to rank {}", rank_,
                      from, posts[at(from)].peer);
                copy(stream, receive, posts[at(from)].in, bytes);
              });
    if (to != rank_) sent_ += bytes;
  }

  void all_reduce_host(std::span<double> values, Reduce op) override {
    std::vector<double> reduced(values.size());
    const auto count = static_cast<int64>(values.size());
    shared_->host->meet(
        rank_, {.operation = "all_reduce_host", .size = count, .argument = static_cast<int64>(op), .in = values.data()},
        [&](const std::vector<Post>& posts) {
          for (std::size_t i = 0; i < reduced.size(); ++i) {
            reduced[i] = static_cast<const double*>(posts[0].in)[i];
            for (std::size_t r = 1; r < posts.size(); ++r)
              reduced[i] = reduce_pair(reduced[i], static_cast<const double*>(posts[r].in)[i], op);
          }
        });
    std::copy(reduced.begin(), reduced.end(), values.begin());
  }

  std::vector<std::string> all_gather_host(const std::string& value) override {
    std::vector<std::string> all;
    shared_->host->meet(rank_, {.operation = "all_gather_host", .in = &value}, [&](const std::vector<Post>& posts) {
      for (const Post& post : posts) all.push_back(*static_cast<const std::string*>(post.in));
    });
    return all;
  }

  void barrier() override {
    shared_->host->meet(rank_, {.operation = "barrier"}, [](const std::vector<Post>&) {});
  }

  std::shared_ptr<Group> split(int64 color) override {
    struct Offer {
      int64 color;
      std::shared_ptr<Shared> shared;  // made by the first rank of the color
    } mine{color, nullptr};
    std::int64_t members = 0;
    std::int64_t index = 0;
    std::size_t first = 0;
    // Once to learn the colors, once to hand over what the first rank of each color has made.
    shared_->host->meet(rank_, {.operation = "split", .in = &mine}, [&](const std::vector<Post>& posts) {
      for (std::size_t r = 0; r < posts.size(); ++r) {
        if (static_cast<const Offer*>(posts[r].in)->color != color) continue;
        if (members == 0) first = r;
        if (static_cast<int64>(r) < rank_) ++index;
        ++members;
      }
    });
    if (index == 0) mine.shared = std::make_shared<Shared>(members, shared_->abort, shared_->timeout);
    std::shared_ptr<Shared> shared;
    shared_->host->meet(rank_, {.operation = "split", .in = &mine}, [&](const std::vector<Post>& posts) {
      shared = static_cast<const Offer*>(posts[first].in)->shared;
    });
    return std::make_shared<ThreadGroup>(std::move(shared), index);
  }

  void abort(const std::string& reason) override { shared_->abort->abort(reason); }
  const std::shared_ptr<AbortState>& abort_state() const override { return shared_->abort; }
  int64 bytes_sent() const override { return sent_; }

 private:
  static constexpr int64 kFloatBytes = size_of(DType::f32);
  static std::size_t at(int64 rank) { return static_cast<std::size_t>(rank); }
  static void copy(Stream& stream, void* to, const void* from, int64 bytes) {
    if (bytes > 0 && to != from) stream.copy(to, from, bytes);
  }
  void on_stream(Stream& stream, Post post, const std::function<void(const std::vector<Post>&)>& work) {
    check(post.size >= 0, "{} of {} elements", post.operation, post.size);
    if (stream.kind() == DeviceKind::cpu) return shared_->streams->meet(rank_, post, work);
    post.ready = stream.record();
    std::exception_ptr error;
    shared_->streams->meet(rank_, post, [&](const std::vector<Post>& posts) {
      try {
        for (const Post& other : posts) stream.wait(other.ready);
        work(posts);
      } catch (...) {
        error = std::current_exception();
      }
      shared_->done[at(rank_)] = stream.record();  // after an error too: a part may have been queued
    });
    for (const Event& done : shared_->done) stream.wait(done);
    if (error) std::rethrow_exception(error);
  }

  const std::shared_ptr<Shared> shared_;
  const int64 rank_;
  std::atomic<int64> sent_ = 0;
};

}  // namespace

std::vector<std::shared_ptr<Group>> create_thread_groups(int64 size, std::chrono::milliseconds timeout) {
  check(size >= 1, "a group of {} ranks", size);
  const auto shared = std::make_shared<Shared>(size, std::make_shared<AbortState>(), timeout);
  std::vector<std::shared_ptr<Group>> groups;
  for (int64 r = 0; r < size; ++r) groups.push_back(std::make_shared<ThreadGroup>(shared, r));
  return groups;
}

}  // namespace megatoken
