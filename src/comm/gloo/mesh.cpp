#include "comm/gloo/mesh.h"

#include <gloo/common/error.h>
#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <filesystem>

namespace megatoken {
namespace {

// Gloo waits five times this long for a pair to connect.
constexpr std::chrono::milliseconds kConnect{2000};
// By which a connection outlives the ranks' own silence: a rank that is lost shall be named as that.
constexpr std::chrono::milliseconds kAfterSilence{5000};

// Every connection that this process has now breaks when what was sent over it was not acknowledged for `limit`, which
// the receiver's system does whatever its program is busy with: Gloo sends no data that the other side has no room for.
// Gloo tells nobody its sockets; the others there are by now are the rendezvous', which knows a shorter limit.
void break_silent_connections(std::chrono::milliseconds limit) {
  const auto value = static_cast<unsigned>(limit.count());
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::stoi(entry.path().filename());
    sockaddr_storage peer{};
    socklen_t size = sizeof(peer);
    if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) == 0 && peer.ss_family != AF_UNIX)
      setsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, sizeof(value));
  }
}

std::string describe(const Rendezvous& rendezvous, int64 rank) {
  const Peer& peer = rendezvous.peers()[static_cast<std::size_t>(rank)];
  return fmt::format("rank {} (host {}, address {})", rank, peer.host, peer.address);
}

}  // namespace

Mesh::Context::Context(const Rendezvous& rendezvous, std::shared_ptr<gloo::transport::Device> device)
    : gloo::Context(static_cast<int>(rendezvous.rank()), static_cast<int>(rendezvous.size())) {
  device_ = std::move(device);
  transportContext_ = device_->createContext(rank, size);
  transportContext_->setTimeout(kConnect);
}

Mesh::Mesh(std::shared_ptr<Rendezvous> rendezvous, std::shared_ptr<gloo::transport::Device> device,
           std::chrono::milliseconds timeout)
    : rendezvous_(std::move(rendezvous)),
      timeout_(timeout),
      context_(std::make_shared<Context>(*rendezvous_, std::move(device))) {}

std::shared_ptr<Mesh> Mesh::connect(std::shared_ptr<Rendezvous> rendezvous,
                                    std::shared_ptr<gloo::transport::Device> device, const std::string& name,
                                    std::chrono::milliseconds timeout) {
  std::shared_ptr<Mesh> mesh(new Mesh(std::move(rendezvous), std::move(device), timeout));
  mesh->connect_pairs(name);
  break_silent_connections(mesh->rendezvous_->limit() + kAfterSilence);
  mesh->abort_state()->listen(mesh, [raw = mesh.get()] { raw->interrupt(); });
  return mesh;
}

void Mesh::connect_pairs(const std::string& name) {
  const int64 rank = rendezvous_->rank(), size = rendezvous_->size();
  const auto key = [&](int64 from, int64 to) { return fmt::format("gloo {} {} {}", name, from, to); };
  std::vector<std::string> keys;
  for (int64 peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    const auto address = context_->transport().createPair(static_cast<int>(peer))->address().bytes();
    rendezvous_->put(key(rank, peer), std::string(address.begin(), address.end()));
    keys.push_back(key(peer, rank));
  }
  const auto addresses = rendezvous_->get(keys);
  std::size_t next = 0;
  for (int64 peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    const std::string& address = addresses[next++];
    try {
      context_->transport().getPair(static_cast<int>(peer))->connect({address.begin(), address.end()});
    } catch (const gloo::Exception& error) {
      rendezvous_->abort_state()->check();
      throw TrainError("no connection to {}: {}", describe(*rendezvous_, peer), error.what());
    }
  }
}

float* Mesh::scratch(int64 count) {
  if (static_cast<int64>(scratch_.size()) < count) scratch_.resize(static_cast<std::size_t>(count));
  return scratch_.data();
}

void Mesh::interrupt() {
  const std::lock_guard lock(mutex_);
  for (Transfers* transfers : active_) {
    for (auto& t : transfers->sends_) t.buffer->abortWaitSend();
    for (auto& t : transfers->receives_) t.buffer->abortWaitRecv();
  }
}

Transfers::Transfers(Mesh& mesh, std::uint64_t tag, const char* what) : mesh_(mesh), tag_(tag), what_(what) {
  const std::lock_guard lock(mesh_.mutex_);
  mesh_.active_.insert(this);
}

Transfers::~Transfers() {
  const std::lock_guard lock(mesh_.mutex_);
  mesh_.active_.erase(this);
}

void Transfers::send(int64 to, const void* data, int64 bytes) {
  start(sends_, to, const_cast<void*>(data), bytes, true);
}
void Transfers::receive(int64 from, void* data, int64 bytes) { start(receives_, from, data, bytes, false); }

void Transfers::start(std::vector<Transfer>& list, int64 peer, void* data, int64 bytes, bool sending) {
  if (bytes == 0) return;
  auto buffer = mesh_.context_->createUnboundBuffer(data, static_cast<std::size_t>(bytes));
  gloo::transport::UnboundBuffer& started = *buffer;
  {
    // Either interrupt() sees the transfer, or this sees that the job has failed.
    const std::lock_guard lock(mesh_.mutex_);
    list.push_back({peer, std::move(buffer)});
  }
  mesh_.abort_state()->check();
  try {
    sending ? started.send(static_cast<int>(peer), tag_) : started.recv(static_cast<int>(peer), tag_);
  } catch (const gloo::Exception& error) {
    fail(peer, error.what());
  }
}

void Transfers::wait_received(int64 count) {
  for (int64 i = 0; i < count; ++i) {
    const Transfer& transfer = receives_[received_++];
    bool arrived = false;
    try {
      arrived = transfer.buffer->waitRecv(nullptr, mesh_.timeout_);
    } catch (const gloo::Exception& error) {
      fail(transfer.peer, error.what());
    }
    if (!arrived) mesh_.abort_state()->check();
    progress_ = Clock::now();
  }
}

void Transfers::wait() {
  wait_received(num_receives() - static_cast<int64>(received_));
  for (const Transfer& transfer : sends_) {
    bool gone = false;
    try {
      gone = transfer.buffer->waitSend(nullptr, mesh_.timeout_);
    } catch (const gloo::Exception& error) {
      fail(transfer.peer, error.what());
    }
    if (!gone) mesh_.abort_state()->check();
    progress_ = Clock::now();
  }
  mesh_.abort_state()->check();
}

void Transfers::fail(int64 peer, const std::string& why) {
  mesh_.abort_state()->check();
  mesh_.rendezvous_->fail_of_connection(fmt::format("{} with {}: {}", what_, describe(*mesh_.rendezvous_, peer), why),
                                        progress_);
}

}  // namespace megatoken
