#include "comm/rendezvous/connection.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace megatoken {

void Connection::flush() {
  while (open() && has_unsent()) {
    const ssize_t sent = ::send(socket_.fd(), unsent_.data() + sent_, unsent_.size() - sent_, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      if (errno != EAGAIN && errno != EWOULDBLOCK) close();
      return;
    }
    sent_ += static_cast<std::size_t>(sent);
  }
  unsent_.clear();
  sent_ = 0;
}

void Connection::receive() {
  std::array<char, 65536> bytes;
  // At most this much in one go, so that nobody keeps the others waiting.
  for (int round = 0; open() && round < 64; ++round) {
    const ssize_t size = ::recv(socket_.fd(), bytes.data(), bytes.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (size <= 0) return close();
    heard_ = Clock::now();
    reader_.append({bytes.data(), static_cast<std::size_t>(size)});
  }
}

}  // namespace megatoken
