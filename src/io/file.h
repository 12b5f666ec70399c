// Files of the host: read-only maps, whole-file reads, and writes that are whole or absent.
// Reading errors are FileError (exit 3), writing errors TrainError (exit 5, a full disk among them); both name the path
// and the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/dtype.h"

namespace megatoken {

// Text of a user's file made fit for a one-line message: control characters escaped, cut to max_bytes.
std::string printable(std::string_view text, int64 max_bytes = 120);

// A regular file mapped read-only. Movable; the map lives as long as the object. Reading is thread-safe.
class MappedFile {
 public:
  static MappedFile open(const std::string& path);  // FileError: missing, unreadable, not a regular file

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  int64 size() const { return size_; }
  const std::byte* data() const { return data_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), static_cast<std::size_t>(size_)}; }

  // Brings bytes [offset, offset + count) into memory. A file cut short or a device that fails since the map was made
  // is a FileError here, where touching the bytes would be a SIGBUS (kernels before 5.14 can't tell; there the file's
  // length is looked up instead).
  void fetch(int64 offset, int64 count) const;
  // Gives the resident pages of the range back; they stay in the page cache and return at the next touch.
  void release(int64 offset, int64 count) const;

 private:
  MappedFile() = default;
  void reset() noexcept;

  std::string path_;
  const std::byte* data_ = nullptr;
  int64 size_ = 0;
  std::uint64_t device_ = 0, inode_ = 0;  // of the file mapped; the descriptor is closed, a model has many shards
};

// The whole file; FileError when it is longer than limit bytes.
std::string read_text_file(const std::string& path, int64 limit = int64{1} << 30);

// Writes a file that doesn't appear under its name before it is complete and on the disk: temporary name beside it,
// fsync, rename, fsync of the directory. On an error nothing new is left behind.
void write_file_atomic(const std::string& path, std::string_view content);

// A file being written. Every failure is a TrainError naming the path; the destructor closes without a word.
class OutputFile {
 public:
  static OutputFile create(const std::string& path);  // created or emptied

  OutputFile() = default;  // no file: only to be assigned to
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  const std::string& path() const { return path_; }
  // Claims the space now where the file system can, so that a full disk shows before hours of writing.
  void reserve(int64 bytes);
  void write_at(int64 offset, const void* data, int64 bytes);  // thread-safe
  void sync();
  void close();

 private:
  std::string path_;
  int fd_ = -1;
};

void rename_path(const std::string& from, const std::string& to);  // TrainError
void sync_directory(const std::string& dir);                       // TrainError
void copy_file_synced(const std::string& from, const std::string& to);
// Directory and parents. An existing directory is no error; TrainError otherwise.
void make_directories(const std::string& dir);

// For the start of a run: makes the directory if it is missing and tries to write in it. ConfigError (exit 2) naming
// the key and the reason otherwise.
void check_writable(const std::string& dir, std::string_view key = "output_dir");

}  // namespace megatoken
