// Event files, read back by the format's own rules. The last test's bytes were read by tensorboard 2.21's
// EventAccumulator.
#include "report/tensorboard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"

namespace megatoken {
namespace {

namespace fs = std::filesystem;

struct TemporaryDirectory {
  std::string path;
  TemporaryDirectory() {
    std::string name = (fs::temp_directory_path() / "megatoken-events-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~TemporaryDirectory() { fs::remove_all(path); }
};

// RFC 3720, B.4.
TEST(Crc32c, KnownValues) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
}

template <typename T>
T read(const std::string& bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// The events of a file whose frames and checksums are right.
std::vector<std::string> events_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  std::vector<std::string> events;
  const auto masked = [](std::uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u; };
  for (std::size_t at = 0; at < bytes.size();) {
    const auto length = read<std::uint64_t>(bytes, at);
    EXPECT_EQ(read<std::uint32_t>(bytes, at + 8), masked(crc32c(bytes.substr(at, 8))));
    events.push_back(bytes.substr(at + 12, length));
    EXPECT_EQ(read<std::uint32_t>(bytes, at + 12 + length), masked(crc32c(events.back())));
    at += 16 + length;
  }
  return events;
}

TEST(EventFile, HoldsAVersionAndEveryScalar) {
  const TemporaryDirectory directory;
  EventFile file(directory.path + "/runs/now");
  file.add_scalars(300, {{"train/loss", 2.5}, {"train/grad_norm", -1}});
  const auto events = events_of(file.path());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].substr(9), std::string("\x10\x00\x1a\x0d", 4) + "brain.Event:2");
  // step 300 as a varint; a summary of two values: tag, then a float.
  const std::string loss = "\x0a\x0atrain/loss\x15" + std::string("\x00\x00\x20\x40", 4);
  const std::string norm = "\x0a\x0ftrain/grad_norm\x15" + std::string("\x00\x00\x80\xbf", 4);
  EXPECT_EQ(events[1].substr(9), "\x10\xac\x02\x2a\x2b\x0a\x11" + loss + "\x0a\x16" + norm);
}

TEST(EventFile, EveryFileIsANewOne) {
  const TemporaryDirectory directory;
  EventFile first(directory.path), second(directory.path);
  EXPECT_NE(first.path(), second.path());
  EXPECT_THROW(EventFile("/proc/nowhere"), TrainError);
}

}  // namespace
}  // namespace megatoken
