// Collectives of processes, put together from sends and receives: every rank's part goes straight to where it is
// needed, and sums are taken in rank order, which Gloo's own algorithms don't.
#include "comm/process_group.h"

#include <gloo/common/error.h>
#include <gloo/transport/tcp/device.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "comm/gloo/mesh.h"
#include "comm/reduction.h"

namespace megatoken {
namespace {

constexpr int64 kFloatBytes = size_of(DType::f32);
// What a rank keeps for values on their way into a sum, two pieces of every other rank's; and the least piece.
constexpr int64 kScratchFloats = int64{1} << 20;
constexpr int64 kLeastPiece = int64{1} << 14;

// What a group and all that are split from it have in common on one rank. Operations of streams and of the host go over
// meshes of their own: they come from different threads.
struct Family {
  std::shared_ptr<Rendezvous> rendezvous;
  std::shared_ptr<Mesh> host;
  std::shared_ptr<Mesh> streams;  // null: host operations alone
  int64 groups_led = 0;           // groups whose first rank this is
};

// Groups differ by their tag's upper half, operations of a group by the lower.
std::uint64_t group_tag(int64 leader, int64 groups_led) {
  constexpr int64 kLeaders = int64{1} << 20, kGroups = int64{1} << 12;
  check(leader < kLeaders && groups_led < kGroups, "group {} of rank {}", groups_led, leader);
  return static_cast<std::uint64_t>(leader * kGroups + groups_led) << 32;
}

class ProcessGroup final : public Group {
 public:
  ProcessGroup(std::shared_ptr<Family> family, std::vector<int64> members, int64 rank, std::uint64_t tag)
      : family_(std::move(family)), members_(std::move(members)), rank_(rank), tag_(tag) {}

  int64 rank() const override { return rank_; }
  int64 size() const override { return static_cast<int64>(members_.size()); }

  void all_gather(Stream& stream, const void* in, void* out, int64 bytes) override {
    begin(stream, "all_gather", bytes);
    auto* const parts = static_cast<std::byte*>(out);
    std::byte* const own = parts + rank_ * bytes;
    if (bytes > 0 && own != in) stream.copy(own, in, bytes);
    Transfers transfers = start("all_gather");
    for_others([&](int64 r) { transfers.receive(member(r), parts + r * bytes, bytes); });
    for_others([&](int64 r) { transfers.send(member(r), own, bytes); });
    transfers.wait();
    sent_ += bytes * (size() - 1);
  }

  void reduce_scatter(Stream& stream, const float* in, float* out, int64 count) override {
    begin(stream, "reduce_scatter", count);
    sum_parts(stream, "reduce_scatter", in, out, [&](int64 r) { return std::pair(r * count, (r + 1) * count); });
    sent_ += count * kFloatBytes * (size() - 1);
  }

  void all_reduce(Stream& stream, float* data, int64 count) override {
    begin(stream, "all_reduce", count);
    const auto part = [&](int64 r) { return part_of(count, r, size()); };
    const auto [first, last] = part(rank_);
    sum_parts(stream, "all_reduce", data, data + first, part);
    Transfers transfers = start("all_reduce");
    for_others([&](int64 r) {
      const auto [begin, end] = part(r);
      transfers.receive(member(r), data + begin, (end - begin) * kFloatBytes);
    });
    for_others([&, begin = first, end = last](int64 r) {
      transfers.send(member(r), data + begin, (end - begin) * kFloatBytes);
    });
    transfers.wait();
    sent_ += (count - (last - first)) * kFloatBytes + (last - first) * kFloatBytes * (size() - 1);
  }

  void broadcast(Stream& stream, void* data, int64 bytes, int64 root) override {
    check(root >= 0 && root < size(), "broadcast from rank {} of {}", root, size());
    begin(stream, "broadcast", bytes);
    Transfers transfers = start("broadcast");
    if (rank_ == root)
      for_others([&](int64 r) { transfers.send(member(r), data, bytes); });
    else
      transfers.receive(member(root), data, bytes);
    transfers.wait();
    if (rank_ == root) sent_ += bytes * (size() - 1);
  }

  void send_receive(Stream& stream, const void* send, int64 to, void* receive, int64 from, int64 bytes) override {
    check(to >= 0 && to < size() && from >= 0 && from < size(), "send to rank {} and receive from rank {} of {}", to,
          from, size());
    check((to == rank_) == (from == rank_), "rank {} sends to rank {} and receives from rank {}", rank_, to, from);
    begin(stream, "send_receive", bytes);
    Transfers transfers = start("send_receive");
    if (to == rank_) {
      if (bytes > 0 && receive != send) stream.copy(receive, send, bytes);
      return;
    }
    transfers.receive(member(from), receive, bytes);
    transfers.send(member(to), send, bytes);
    transfers.wait();
    sent_ += bytes;
  }

  void all_reduce_host(std::span<double> values, Reduce op) override {
    const auto all = gather_host("all_reduce_host", static_cast<int64>(op),
                                 std::string(reinterpret_cast<const char*>(values.data()), values.size_bytes()));
    std::vector<double> other(values.size());
    for (std::size_t r = 0; r < all.size(); ++r) {
      check(all[r].size() == values.size_bytes(), "rank 0 reduces {} bytes, rank {} {}", all[0].size(), r,
            all[r].size());
      if (other.empty()) continue;
      std::memcpy(other.data(), all[r].data(), all[r].size());
      for (std::size_t i = 0; i < other.size(); ++i)
        values[i] = r == 0 ? other[i] : reduce_pair(values[i], other[i], op);
    }
  }

  std::vector<std::string> all_gather_host(const std::string& value) override {
    return gather_host("all_gather_host", 0, value);
  }

  void barrier() override { gather_host("barrier", 0, ""); }

  std::shared_ptr<Group> split(int64 color) override {
    const std::vector<std::string> all = gather_host("split", 0, fmt::format("{} {}", color, family_->groups_led));
    std::vector<int64> members;
    int64 rank = 0, led = 0;
    for (int64 r = 0; r < size(); ++r) {
      const std::string& offer = all[static_cast<std::size_t>(r)];
      const std::size_t space = offer.find(' ');
      if (std::stoll(offer.substr(0, space)) != color) continue;
      if (members.empty()) led = std::stoll(offer.substr(space + 1));
      if (r == rank_) rank = static_cast<int64>(members.size());
      members.push_back(member(r));
    }
    if (rank == 0) ++family_->groups_led;
    const std::uint64_t tag = group_tag(members.front(), led);
    return std::make_shared<ProcessGroup>(family_, std::move(members), rank, tag);
  }

  void abort(const std::string& reason) override { family_->rendezvous->abort(ExitCode::failed, reason); }
  const std::shared_ptr<AbortState>& abort_state() const override { return family_->rendezvous->abort_state(); }
  int64 bytes_sent() const override { return sent_; }

 private:
  int64 member(int64 r) const { return members_[static_cast<std::size_t>(r)]; }
  // Calls f for every other rank of the group, the next one first: so no rank is everybody's first.
  template <typename F>
  void for_others(const F& f) const {
    for (int64 step = 1; step < size(); ++step) f((rank_ + step) % size());
  }

  void begin(Stream& stream, const char* what, int64 count) const {
    check(stream.kind() == DeviceKind::cpu, "{} between processes needs a CPU stream", what);
    check(count >= 0, "{} of {} elements", what, count);
    check(family_->streams != nullptr, "{} in a group for host operations", what);
    family_->rendezvous->abort_state()->check();
  }
  Transfers start(const char* what) { return Transfers(*family_->streams, tag_ | stream_operations_++, what); }

  // out = sum over ranks of their elements part(rank()). in: all parts, of which part(r) is added up by rank r.
  // Piece by piece: while one is added up, the next is on its way.
  template <typename Part>
  void sum_parts(Stream& stream, const char* what, const float* in, float* out, const Part& part) {
    const int64 others = size() - 1;
    const auto [first, last] = part(rank_);
    int64 longest = 0;
    for (int64 r = 0; r < size(); ++r) longest = std::max(longest, part(r).second - part(r).first);
    const int64 piece = std::max(kLeastPiece, kScratchFloats / 2 / std::max<int64>(others, 1));
    float* const scratch = family_->streams->scratch(2 * others * std::min(piece, longest));
    const int64 stride = std::min(piece, longest);
    Transfers transfers = start(what);
    const auto count_at = [&](int64 begin, int64 r) {
      return std::clamp<int64>(part(r).second - part(r).first - begin, 0, piece);
    };
    // Rank r's values of a piece: its own stand in `in`, the others' in one of two halves of the scratch memory.
    const auto place = [&](int64 begin, int64 r) {
      return scratch + ((begin / piece % 2) * others + (r < rank_ ? r : r - 1)) * stride;
    };
    const auto post = [&](int64 begin) {
      if (begin >= longest) return;
      if (const int64 n = count_at(begin, rank_); n > 0)
        for_others([&](int64 r) { transfers.receive(member(r), place(begin, r), n * kFloatBytes); });
      for_others(
          [&](int64 r) { transfers.send(member(r), in + part(r).first + begin, count_at(begin, r) * kFloatBytes); });
    };
    std::vector<const float*> terms(members_.size());
    post(0);
    for (int64 begin = 0; begin < longest; begin += piece) {
      post(begin + piece);
      const int64 n = count_at(begin, rank_);
      if (n == 0) continue;
      transfers.wait_received(others);
      for (int64 r = 0; r < size(); ++r)
        terms[static_cast<std::size_t>(r)] = r == rank_ ? in + first + begin : place(begin, r);
      stream.sum(terms, out + begin, n);
    }
    transfers.wait();
  }

  // Every rank's bytes, by rank. First what each calls, and with how much; differing calls are named.
  std::vector<std::string> gather_host(const char* operation, int64 argument, const std::string& value) {
    struct Header {
      char operation[24] = {};
      int64 argument = 0, bytes = 0;
    };
    family_->rendezvous->abort_state()->check();
    Mesh& mesh = *family_->host;
    std::vector<Header> headers(members_.size());
    Header& own = headers[static_cast<std::size_t>(rank_)];
    std::strncpy(own.operation, operation, sizeof(own.operation) - 1);
    own.argument = argument;
    own.bytes = static_cast<int64>(value.size());
    const auto at = [](int64 r) { return static_cast<std::size_t>(r); };
    {
      Transfers transfers(mesh, tag_ | host_operations_++, operation);
      for_others([&](int64 r) { transfers.receive(member(r), &headers[at(r)], sizeof(Header)); });
      for_others([&](int64 r) { transfers.send(member(r), &own, sizeof(Header)); });
      transfers.wait();
    }
    for (const Header& header : headers)
      check(std::strcmp(header.operation, headers[0].operation) == 0 && header.argument == headers[0].argument,
            "rank 0 calls {} (argument {}), rank {} calls {} (argument {})", headers[0].operation, headers[0].argument,
            &header - headers.data(), header.operation, header.argument);
    std::vector<std::string> all(members_.size());
    all[at(rank_)] = value;
    Transfers transfers(mesh, tag_ | host_operations_++, operation);
    for_others([&](int64 r) {
      all[at(r)].resize(static_cast<std::size_t>(headers[at(r)].bytes));
      transfers.receive(member(r), all[at(r)].data(), headers[at(r)].bytes);
    });
    for_others([&](int64 r) { transfers.send(member(r), value.data(), static_cast<int64>(value.size())); });
    transfers.wait();
    return all;
  }

  const std::shared_ptr<Family> family_;
  const std::vector<int64> members_;  // ranks of the job
  const int64 rank_;
  const std::uint64_t tag_;
  std::uint32_t stream_operations_ = 0, host_operations_ = 0;
  std::atomic<int64> sent_ = 0;
};

std::shared_ptr<gloo::transport::Device> create_device(const Rendezvous& rendezvous) {
  gloo::transport::tcp::attr attributes;
  const char* const interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != '\0')
    attributes.iface = interface;
  else
    attributes.hostname = rendezvous.peers()[static_cast<std::size_t>(rendezvous.rank())].address;
  try {
    return gloo::transport::tcp::CreateDevice(attributes);
  } catch (const std::exception& error) {
    if (!attributes.iface.empty())
      throw ConfigError("GLOO_SOCKET_IFNAME {}: no address of such a network interface: {}", attributes.iface,
                        error.what());
    throw TrainError("rank {} can't listen at its address {}: {}", rendezvous.rank(), attributes.hostname,
                     error.what());
  }
}

}  // namespace

bool has_process_groups() { return true; }

std::shared_ptr<Group> create_process_group(std::shared_ptr<Rendezvous> rendezvous, GroupUse use,
                                            std::chrono::milliseconds timeout) {
  std::signal(SIGPIPE, SIG_IGN);  // Gloo writes to connections that a lost rank has closed
  auto family = std::make_shared<Family>();
  family->rendezvous = rendezvous;
  const auto device = create_device(*rendezvous);
  family->host = Mesh::connect(rendezvous, device, "host", timeout);
  if (use == GroupUse::all) family->streams = Mesh::connect(rendezvous, device, "streams", timeout);
  std::vector<int64> members;
  for (int64 r = 0; r < rendezvous->size(); ++r) members.push_back(r);
  family->groups_led = rendezvous->rank() == 0 ? 1 : 0;
  return std::make_shared<ProcessGroup>(std::move(family), std::move(members), rendezvous->rank(), group_tag(0, 0));
}

}  // namespace megatoken
