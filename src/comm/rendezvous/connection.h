// A socket that carries messages, without ever blocking: what can't be sent at once waits here.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "comm/rendezvous/message.h"
#include "comm/rendezvous/socket.h"

namespace megatoken {

class Connection {
 public:
  using Clock = std::chrono::steady_clock;
  Connection(Socket socket, int64 max_frame)
      : socket_(std::move(socket)), reader_(max_frame), heard_(Clock::now()), opened_(heard_) {}

  const Socket& socket() const { return socket_; }
  bool open() const { return socket_.open(); }
  Clock::time_point heard() const { return heard_; }  // when anything last came
  Clock::time_point opened() const { return opened_; }
  bool has_unsent() const { return sent_ < unsent_.size(); }

  // Queues it; sent by flush().
  void send(const Message& message) { unsent_ += encode(message); }
  // Sends what the socket takes now. Closes at an error.
  void flush();
  // Takes in what is there. Closes at the end of the stream or at an error; messages that came before remain readable.
  void receive();
  // The next whole message. ProtocolError when the peer sends anything else.
  std::optional<Message> next() { return reader_.next(); }
  void set_max_frame(int64 bytes) { reader_.set_max_frame(bytes); }
  void close() { socket_ = Socket(); }

 private:
  Socket socket_;
  FrameReader reader_;
  std::string unsent_;
  std::size_t sent_ = 0;
  Clock::time_point heard_, opened_;
};

}  // namespace megatoken
