// TensorBoard event files: records framed as TensorFlow's TFRecord (length, masked CRC-32C, bytes, masked CRC-32C),
// each an Event message of tensorflow/core/util/event.proto in protocol-buffer encoding.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megatoken {

class EventFile {
 public:
  // Creates dir and a new file in it, named by time, host and process. TrainError naming the file when it can't be
  // written.
  explicit EventFile(const std::string& dir);
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;
  ~EventFile();

  // One event with a scalar for each (tag, value); values are stored as float32. On the disk when it returns.
  void add_scalars(std::int64_t step, const std::vector<std::pair<std::string, double>>& scalars);
  const std::string& path() const { return path_; }

 private:
  void write(const std::string& event);

  std::string path_;
  int fd_ = -1;
};

// CRC-32C (Castagnoli, RFC 3720 appendix B.4).
std::uint32_t crc32c(std::string_view bytes);

}  // namespace megatoken
