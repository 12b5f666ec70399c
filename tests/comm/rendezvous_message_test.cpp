#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "comm/rendezvous/message.h"

namespace megatoken {
namespace {

const Peer kPeer{"host", "boot/host", 4711, 99, "10.0.0.1", "1101"};

std::vector<Message> all_messages() {
  return {Hello{kProtocolVersion, "job", 1, 2, kPeer, {{"seed", "42"}, {"", std::string(1000, 'x')}}},
          Welcome{{kPeer, Peer{}}},
          Put{"key", std::string("\0binary\xff", 8)},
          Get{7, {"a", "b", ""}},
          Values{7, {"1", "", "3"}},
          Heartbeat{},
          Abort{5, 3, "disk full"},
          Leave{},
          Left{}};
}

std::string body(const Message& message) { return encode(message).substr(4); }

TEST(RendezvousMessage, EveryKindComesBackAsItWent) {
  for (const Message& message : all_messages()) EXPECT_EQ(encode(decode(body(message))), encode(message));
  const auto hello = std::get<Hello>(decode(body(all_messages()[0])));
  EXPECT_EQ(hello.peer.process, 4711);
  EXPECT_EQ(hello.settings[0].second, "42");
  EXPECT_EQ(std::get<Abort>(decode(body(all_messages()[6]))).reason, "disk full");
}

TEST(RendezvousMessage, CutInAnyPieces) {
  std::string stream;
  for (const Message& message : all_messages()) stream += encode(message);
  for (const std::size_t piece : {1, 2, 3, 7, 100, 5000}) {
    FrameReader reader(kMaxFrame);
    std::size_t next = 0;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      reader.append(std::string_view(stream).substr(at, piece));
      while (const auto message = reader.next()) EXPECT_EQ(encode(*message), encode(all_messages()[next++]));
    }
    EXPECT_EQ(next, all_messages().size());
  }
}

TEST(RendezvousMessage, CutShortOrTooLongIsRefused) {
  for (const Message& message : all_messages()) {
    const std::string whole = body(message);
    for (std::size_t size = 0; size < whole.size(); ++size)
      EXPECT_THROW(decode(whole.substr(0, size)), ProtocolError) << message.index() << " cut to " << size;
    EXPECT_THROW(decode(whole + '\0'), ProtocolError);
  }
  EXPECT_THROW(decode(std::string(1, '\x7f')), ProtocolError);
}

TEST(RendezvousMessage, OtherProgramsAreRefused) {
  for (const std::string text :
       {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n", "\x16\x03\x01\x02\x00\x01"}) {
    FrameReader reader(kMaxFirstFrame);
    reader.append(text);
    EXPECT_THROW(reader.next(), ProtocolError);
  }
  FrameReader reader(kMaxFirstFrame);
  reader.append(std::string(4, '\0'));
  EXPECT_THROW(reader.next(), ProtocolError);
}

// Whatever bytes come: a message that encodes to the very same bytes, or a refusal; never more memory than there are
// bytes.
TEST(RendezvousMessage, RandomDamage) {
  const Random random(1, 0);
  std::uint64_t at = 0;
  const auto draw = [&](std::uint64_t below) { return random.below(at++, below); };
  int accepted = 0;
  for (int round = 0; round < 200'000; ++round) {
    const auto messages = all_messages();
    std::string bytes = body(messages[draw(messages.size())]);
    if (bytes.size() > 300) bytes = body(Hello{kProtocolVersion, "j", 0, 1, kPeer, {{"k", "v"}}});
    for (std::uint64_t damage = 1 + draw(3); damage-- > 0;) switch (draw(4)) {
        case 0:
          bytes[draw(bytes.size())] = static_cast<char>(draw(256));
          break;
        case 1:
          bytes.resize(1 + draw(bytes.size()));
          break;
        case 2:
          bytes.insert(draw(bytes.size()), 1 + draw(9), static_cast<char>(draw(256)));
          break;
        case 3:
          bytes[draw(bytes.size())] = draw(2) == 0 ? '\xff' : '\x7f';
          break;
      }
    try {
      EXPECT_EQ(body(decode(bytes)), bytes);
      ++accepted;
    } catch (const ProtocolError&) {
    }
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_LT(accepted, 199'000);
}

}  // namespace
}  // namespace megatoken
