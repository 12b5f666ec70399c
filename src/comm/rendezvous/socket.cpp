#include "comm/rendezvous/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace megatoken {
namespace {

struct Address {
  sockaddr_storage storage{};
  socklen_t size = sizeof(sockaddr_storage);
  sockaddr* raw() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

std::string numeric(const Address& address) {
  char text[NI_MAXHOST];
  if (getnameinfo(address.raw(), address.size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) return "";
  constexpr std::string_view kMapped = "::ffff:";  // IPv4 that came to an IPv6 socket
  const std::string_view view = text;
  if (view.starts_with(kMapped) && view.find('.') != std::string_view::npos)
    return std::string(view.substr(kMapped.size()));
  return text;
}

std::optional<Address> parse(const std::string& text, int64 port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(text.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return std::nullopt;
  Address address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

void set_option(int fd, int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof(value)); }

// Small messages at once; a peer that vanished is noticed even when nothing is said.
void tune(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}

constexpr int kFlags = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

std::string Socket::local_address() const {
  Address address;
  return getsockname(fd_, address.raw(), &address.size) == 0 ? numeric(address) : "";
}

std::string Socket::peer_address() const {
  Address address;
  return getpeername(fd_, address.raw(), &address.size) == 0 ? numeric(address) : "";
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

std::vector<std::string> resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) throw ConfigError("MASTER_ADDR: no address of host {}: {}", host, gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    Address address;
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    address.size = at->ai_addrlen;
    const std::string text = numeric(address);
    if (!text.empty() && std::find(addresses.begin(), addresses.end(), text) == addresses.end())
      addresses.push_back(text);
  }
  if (addresses.empty()) throw ConfigError("MASTER_ADDR: no address of host {}", host);
  return addresses;
}

std::optional<Socket> listen_at(const std::string& address, int64 port) {
  std::optional<Address> at = parse(address.empty() ? "::" : address, port);
  check(at.has_value(), "{} is no numeric address", address);
  Socket socket(::socket(at->storage.ss_family, kFlags, 0));
  if (!socket.open() && address.empty()) {  // a host without IPv6
    at = parse("0.0.0.0", port);
    socket = Socket(::socket(AF_INET, kFlags, 0));
  }
  if (!socket.open()) throw ConfigError("MASTER_PORT {}: no socket: {}", port, std::strerror(errno));
  set_option(socket.fd(), SOL_SOCKET, SO_REUSEADDR, 1);  // over connections of an earlier run that are still closing
  if (address.empty() && at->storage.ss_family == AF_INET6) set_option(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (bind(socket.fd(), at->raw(), at->size) != 0 || listen(socket.fd(), SOMAXCONN) != 0) {
    if (errno == EADDRINUSE) return std::nullopt;
    throw ConfigError("MASTER_ADDR {}, MASTER_PORT {}: rank 0 can't listen there: {}",
                      address.empty() ? "any" : address, port, std::strerror(errno));
  }
  return socket;
}

int64 port_of(const Socket& listener) {
  Address address;
  check(getsockname(listener.fd(), address.raw(), &address.size) == 0, "no address of a listening socket");
  char port[NI_MAXSERV];
  check(getnameinfo(address.raw(), address.size, nullptr, 0, port, sizeof(port), NI_NUMERICSERV) == 0, "no port");
  return std::stoll(port);
}

std::optional<Socket> accept_at(const Socket& listener) {
  const int fd = accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return std::nullopt;
  tune(fd);
  return Socket(fd);
}

std::optional<Socket> connect_to(const std::string& address, int64 port, std::chrono::milliseconds limit,
                                 std::string& why) {
  const std::optional<Address> at = parse(address, port);
  check(at.has_value(), "{} is no numeric address", address);
  Socket socket(::socket(at->storage.ss_family, kFlags, 0));
  if (!socket.open()) {
    why = std::strerror(errno);
    return std::nullopt;
  }
  tune(socket.fd());
  if (connect(socket.fd(), at->raw(), at->size) != 0) {
    if (errno != EINPROGRESS) {
      why = std::strerror(errno);
      return std::nullopt;
    }
    pollfd wait{socket.fd(), POLLOUT, 0};
    const auto deadline = std::chrono::steady_clock::now() + limit;
    int ready = 0;
    do {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      ready = poll(&wait, 1, static_cast<int>(std::max<int64>(0, left.count())));
    } while (ready < 0 && errno == EINTR);
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (ready <= 0 || error != 0) {
      why = ready <= 0 ? "no answer" : std::strerror(error);
      return std::nullopt;
    }
  }
  // A port of this host's own range may by chance connect to itself while nobody listens there.
  if (socket.local_address() == socket.peer_address()) {
    Address local, peer;
    getsockname(socket.fd(), local.raw(), &local.size);
    getpeername(socket.fd(), peer.raw(), &peer.size);
    if (local.size == peer.size && std::memcmp(&local.storage, &peer.storage, local.size) == 0) {
      why = "Connection refused";
      return std::nullopt;
    }
  }
  return socket;
}

}  // namespace megatoken
