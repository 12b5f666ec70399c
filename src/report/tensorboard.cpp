#include "report/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace megatoken {
namespace {

constexpr std::array<std::uint32_t, 256> kCrcTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0x82F63B78u : 0u);
    table[i] = crc;
  }
  return table;
}();

void append_little_endian(std::string& to, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) to += static_cast<char>((value >> (8 * i)) & 0xFF);
}

void append_varint(std::string& to, std::uint64_t value) {
  for (; value >= 128; value >>= 7) to += static_cast<char>((value & 127) | 128);
  to += static_cast<char>(value);
}

// Wire types of protocol buffers.
enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void append_key(std::string& to, int field, Wire wire) {
  append_varint(to, static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire));
}

void append_bytes(std::string& to, int field, std::string_view value) {
  append_key(to, field, Wire::bytes);
  append_varint(to, value.size());
  to += value;
}

// Event: 1 wall_time (double), 2 step (int64), 3 file_version (string), 5 summary (Summary).
std::string begin_event(std::int64_t step) {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::string event;
  append_key(event, 1, Wire::fixed64);
  append_little_endian(event, std::bit_cast<std::uint64_t>(now), 8);
  append_key(event, 2, Wire::varint);
  append_varint(event, static_cast<std::uint64_t>(step));
  return event;
}

// The mask TFRecord puts on checksums.
std::uint32_t masked(std::uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u; }

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFFu;
  for (const char c : bytes) crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~crc;
}

EventFile::EventFile(const std::string& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) std::strcpy(host.data(), "localhost");
  const auto now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch());
  for (int number = 0;; ++number) {
    path_ = fmt::format("{}/events.out.tfevents.{}.{}.{}.{}", dir, now.count(), host.data(), getpid(), number);
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd_ >= 0) break;
    if (errno != EEXIST) throw TrainError("{}: cannot be written: {}", path_, std::strerror(errno));
  }
  std::string event = begin_event(0);
  append_bytes(event, 3, "brain.Event:2");
  write(event);
}

EventFile::~EventFile() {
  if (fd_ >= 0) ::close(fd_);
}

// Summary: 1 value (repeated Value); Value: 1 tag (string), 2 simple_value (float).
void EventFile::add_scalars(std::int64_t step, const std::vector<std::pair<std::string, double>>& scalars) {
  std::string summary;
  for (const auto& [tag, number] : scalars) {
    std::string value;
    append_bytes(value, 1, tag);
    append_key(value, 2, Wire::fixed32);
    append_little_endian(value, std::bit_cast<std::uint32_t>(static_cast<float>(number)), 4);
    append_bytes(summary, 1, value);
  }
  std::string event = begin_event(step);
  append_bytes(event, 5, summary);
  write(event);
}

void EventFile::write(const std::string& event) {
  std::string record;
  append_little_endian(record, event.size(), 8);
  append_little_endian(record, masked(crc32c(record)), 4);
  record += event;
  append_little_endian(record, masked(crc32c(event)), 4);
  const ssize_t written = ::write(fd_, record.data(), record.size());
  if (written != static_cast<ssize_t>(record.size()))
    throw TrainError("{}: cannot be written: {}", path_, written < 0 ? std::strerror(errno) : "the disk is full");
}

}  // namespace megatoken
