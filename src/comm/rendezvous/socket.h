// TCP sockets that never block: made, connected, accepted and closed.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"

namespace megatoken {

// Owns a file descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();
  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }

  std::string local_address() const;  // numeric, without the port; "" when it can't be told
  std::string peer_address() const;

 private:
  int fd_ = -1;
};

// Whether a numeric address is of this host alone: 127.x.x.x or ::1.
bool is_loopback(const std::string& address);

// The numeric addresses of a host's name. ConfigError naming it when there are none.
std::vector<std::string> resolve(const std::string& host);

// Listens at a port, on one address or (empty) on all of this host's. nullopt: the port is in use. ConfigError: no
// listening there at all.
std::optional<Socket> listen_at(const std::string& address, int64 port);
// Where a listening socket of port 0 ended up.
int64 port_of(const Socket& listener);

// A connection that has come; nullopt: none now.
std::optional<Socket> accept_at(const Socket& listener);

// Connects, waiting at most `limit`. nullopt, and why in words, when that fails.
std::optional<Socket> connect_to(const std::string& address, int64 port, std::chrono::milliseconds limit,
                                 std::string& why);

}  // namespace megatoken
