// What the ranks and the service of a rendezvous say to each other, as bytes.
//
// A frame is a 4-byte length (little-endian, of what follows), one byte for the kind and the fields in order: integers
// of 8 bytes, strings and lists with their length before them. Whatever comes from the network is parsed here, and
// nothing in it is believed: anything else than a whole, exact message is a ProtocolError.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"

namespace megatoken {

struct ProtocolError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr int64 kProtocolVersion = 1;

using Settings = std::vector<std::pair<std::string, std::string>>;

// Where a rank runs.
struct Peer {
  std::string host;       // its name, for messages
  std::string host_id;    // equal for ranks that share memory and cores
  int64 process = 0;      // its id there, for messages
  int64 process_key = 0;  // equal for ranks that are threads of one process
  std::string address;    // numeric, by which the other ranks reach it; as the service sees it
  std::string cores;      // those that it may use, one character each: '1' or '0'
};

// First message of a rank.
struct Hello {
  int64 version = kProtocolVersion;
  std::string job;
  int64 rank = 0, size = 0;
  Peer peer;
  Settings settings;
};
// All ranks are here; their places, by rank.
struct Welcome {
  std::vector<Peer> peers;
};
struct Put {
  std::string key, value;
};
// Answered by Values once every key is there.
struct Get {
  int64 request = 0;
  std::vector<std::string> keys;
};
struct Values {
  int64 request = 0;
  std::vector<std::string> values;
};
struct Heartbeat {};
// The job ends: from a rank, its own failure; from the service, the first one. rank -1: no rank's. code: the exit
// status, or kOtherJob: the service is another job's.
inline constexpr int64 kOtherJob = -1;
struct Abort {
  int64 code = 0;
  int64 rank = -1;
  std::string reason;
  bool lost = false;  // the rank can't speak for itself any more
};
// A rank has nothing more to do; answered by Left when that holds for all.
struct Leave {};
struct Left {};

using Message = std::variant<Hello, Welcome, Put, Get, Values, Heartbeat, Abort, Leave, Left>;

std::string encode(const Message& message);
// The body of one frame, without its length. ProtocolError when it is no message.
Message decode(std::string_view body);

// Largest body of a frame: of anybody, and of those who have not yet said who they are.
inline constexpr int64 kMaxFrame = int64{1} << 30;
inline constexpr int64 kMaxFirstFrame = int64{1} << 20;

// Cuts a stream of bytes into messages.
class FrameReader {
 public:
  explicit FrameReader(int64 max_frame) : max_frame_(max_frame) {}
  void set_max_frame(int64 bytes) { max_frame_ = bytes; }
  void append(std::string_view bytes);
  // The next whole message; nullopt: more bytes are needed. ProtocolError: this stream is no good any more.
  std::optional<Message> next();

 private:
  int64 max_frame_;
  std::string bytes_;
  std::size_t begin_ = 0;
};

}  // namespace megatoken
