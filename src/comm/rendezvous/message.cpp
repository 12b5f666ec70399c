#include "comm/rendezvous/message.h"

#include <cstring>

namespace megatoken {
namespace {

constexpr std::string_view kMagic = "megatoken rendezvous";
constexpr std::size_t kLengthBytes = 4;

class Writer {
 public:
  void integer(int64 value) {
    auto bits = static_cast<std::uint64_t>(value);
    for (int i = 0; i < 8; ++i, bits >>= 8) out_.push_back(static_cast<char>(bits & 0xff));
  }
  void text(std::string_view value) {
    integer(static_cast<int64>(value.size()));
    out_.append(value);
  }
  void byte(std::size_t value) { out_.push_back(static_cast<char>(value)); }
  std::string& bytes() { return out_; }

 private:
  std::string out_ = std::string(kLengthBytes, '\0');
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  std::uint8_t byte() { return static_cast<std::uint8_t>(take(1)[0]); }
  int64 integer() {
    const std::string_view bytes = take(8);
    std::uint64_t value = 0;
    for (std::size_t i = 8; i-- > 0;) value = value << 8 | static_cast<std::uint8_t>(bytes[i]);
    return static_cast<int64>(value);
  }
  std::string text() {
    const int64 size = integer();
    if (size < 0 || size > static_cast<int64>(rest_.size())) throw ProtocolError("a text longer than its message");
    return std::string(take(static_cast<std::size_t>(size)));
  }
  // Of a list whose elements take at least `least` bytes each.
  int64 count(std::size_t least) {
    const int64 value = integer();
    if (value < 0 || value > static_cast<int64>(rest_.size() / least))
      throw ProtocolError("a list longer than its message");
    return value;
  }
  void end() const {
    if (!rest_.empty()) throw ProtocolError("a message longer than its fields");
  }

 private:
  std::string_view take(std::size_t size) {
    if (size > rest_.size()) throw ProtocolError("a message shorter than its fields");
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  std::string_view rest_;
};

// One function a message, for both directions: each field in its order.
void fields(Writer& w, const Peer& p) {
  w.text(p.host);
  w.text(p.host_id);
  w.integer(p.process);
  w.integer(p.process_key);
  w.text(p.address);
  w.text(p.cores);
}
void fields(Reader& r, Peer& p) {
  p.host = r.text();
  p.host_id = r.text();
  p.process = r.integer();
  p.process_key = r.integer();
  p.address = r.text();
  p.cores = r.text();
}
void texts(Writer& w, const std::vector<std::string>& values) {
  w.integer(static_cast<int64>(values.size()));
  for (const std::string& value : values) w.text(value);
}
void texts(Reader& r, std::vector<std::string>& values) {
  values.resize(static_cast<std::size_t>(r.count(8)));
  for (std::string& value : values) value = r.text();
}

void fields(Writer& w, const Hello& m) {
  w.text(kMagic);
  w.integer(m.version);
  w.text(m.job);
  w.integer(m.rank);
  w.integer(m.size);
  fields(w, m.peer);
  w.integer(static_cast<int64>(m.settings.size()));
  for (const auto& [key, value] : m.settings) {
    w.text(key);
    w.text(value);
  }
}
void fields(Reader& r, Hello& m) {
  if (r.text() != kMagic) throw ProtocolError("no hello of a rank");
  m.version = r.integer();
  if (m.version != kProtocolVersion) throw ProtocolError("another version of the program");
  m.job = r.text();
  m.rank = r.integer();
  m.size = r.integer();
  fields(r, m.peer);
  m.settings.resize(static_cast<std::size_t>(r.count(16)));
  for (auto& [key, value] : m.settings) {
    key = r.text();
    value = r.text();
  }
}
void fields(Writer& w, const Welcome& m) {
  w.integer(static_cast<int64>(m.peers.size()));
  for (const Peer& peer : m.peers) fields(w, peer);
}
void fields(Reader& r, Welcome& m) {
  m.peers.resize(static_cast<std::size_t>(r.count(48)));
  for (Peer& peer : m.peers) fields(r, peer);
}
void fields(Writer& w, const Put& m) {
  w.text(m.key);
  w.text(m.value);
}
void fields(Reader& r, Put& m) {
  m.key = r.text();
  m.value = r.text();
}
void fields(Writer& w, const Get& m) {
  w.integer(m.request);
  texts(w, m.keys);
}
void fields(Reader& r, Get& m) {
  m.request = r.integer();
  texts(r, m.keys);
}
void fields(Writer& w, const Values& m) {
  w.integer(m.request);
  texts(w, m.values);
}
void fields(Reader& r, Values& m) {
  m.request = r.integer();
  texts(r, m.values);
}
void fields(Writer& w, const Abort& m) {
  w.integer(m.code);
  w.integer(m.rank);
  w.text(m.reason);
  w.integer(m.lost ? 1 : 0);
}
void fields(Reader& r, Abort& m) {
  m.code = r.integer();
  m.rank = r.integer();
  m.reason = r.text();
  const int64 lost = r.integer();
  if (lost != 0 && lost != 1) throw ProtocolError("a flag that is neither 0 nor 1");
  m.lost = lost == 1;
}
template <typename Stream, typename Empty>
requires std::is_empty_v<Empty>
void fields(Stream&, Empty&) {}

template <std::size_t kKind = 0>
Message decode_kind(std::size_t kind, Reader& reader) {
  if constexpr (kKind == std::variant_size_v<Message>) {
    throw ProtocolError("a message of an unknown kind");
  } else {
    if (kind != kKind) return decode_kind<kKind + 1>(kind, reader);
    std::variant_alternative_t<kKind, Message> message;
    fields(reader, message);
    reader.end();
    return message;
  }
}

}  // namespace

std::string encode(const Message& message) {
  Writer writer;
  writer.byte(message.index());
  std::visit([&](const auto& m) { fields(writer, m); }, message);
  std::string& bytes = writer.bytes();
  const std::size_t body = bytes.size() - kLengthBytes;
  check(static_cast<int64>(body) <= kMaxFrame, "a message of {} bytes", body);
  for (std::size_t i = 0; i < kLengthBytes; ++i) bytes[i] = static_cast<char>(body >> (8 * i) & 0xff);
  return std::move(bytes);
}

Message decode(std::string_view body) {
  Reader reader(body);
  return decode_kind(reader.byte(), reader);
}

void FrameReader::append(std::string_view bytes) {
  if (begin_ > 0 && begin_ >= bytes_.size() / 2) {  // what was read goes once it is the larger part
    bytes_.erase(0, begin_);
    begin_ = 0;
  }
  bytes_.append(bytes);
}

std::optional<Message> FrameReader::next() {
  const std::string_view rest = std::string_view(bytes_).substr(begin_);
  if (rest.size() < kLengthBytes) return std::nullopt;
  std::size_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) length = length << 8 | static_cast<std::uint8_t>(rest[i]);
  if (length == 0 || static_cast<int64>(length) > max_frame_) throw ProtocolError("a frame of an impossible length");
  if (rest.size() - kLengthBytes < length) return std::nullopt;
  Message message = decode(rest.substr(kLengthBytes, length));
  begin_ += kLengthBytes + length;
  return message;
}

}  // namespace megatoken
