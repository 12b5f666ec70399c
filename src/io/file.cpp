#include "io/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/error.h"

// Since Linux 5.14; older headers lack it and older kernels answer EINVAL.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace megatoken {
namespace {

namespace fs = std::filesystem;

const char* reason(int error) {
  const char* text = ::strerrordesc_np(error);
  return text ? text : "unknown error";
}

[[noreturn]] void throw_read_error(const std::string& path, int error) {
  throw FileError("cannot read {}: {}", printable(path, 4096), reason(error));
}

[[noreturn]] void throw_write_error(const std::string& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  throw TrainError("cannot write {}: {}{}", printable(path, 4096), reason(error),
                   full ? "; free some space, then resume from the last checkpoint" : "");
}

void write_all(const std::string& path, int fd, int64 offset, const char* data, int64 bytes) {
  while (bytes > 0) {
    const ssize_t n = ::pwrite(fd, data, static_cast<std::size_t>(std::min<int64>(bytes, int64{1} << 30)), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw_write_error(path, n == 0 ? ENOSPC : errno);
    data += n;
    offset += n;
    bytes -= n;
  }
}

// Closes at the end of a scope.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

std::string parent_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

namespace {

// Bytes of the UTF-8 character at the beginning of text; 0 where there is none.
std::size_t character_size(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  // Overlong forms, surrogates, beyond U+10FFFF.
  if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) >= 0xA0)) return 0;
  if ((first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) >= 0x90)) return 0;
  return size;
}

}  // namespace

std::string printable(std::string_view text, int64 max_bytes) {
  std::string out;
  const auto limit = static_cast<std::size_t>(max_bytes);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = character_size(text.substr(at));
    if (at + std::max<std::size_t>(size, 1) > limit) return out + "...";
    const auto byte = static_cast<unsigned char>(text[at]);
    if (size == 0 || byte < 0x20 || byte == 0x7F)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += text.substr(at, size);
    at += std::max<std::size_t>(size, 1);
  }
  return out;
}

MappedFile MappedFile::open(const std::string& path) {
  MappedFile file;
  file.path_ = path;
  // O_NONBLOCK: a named pipe is refused below, not waited for.
  const Descriptor handle{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (handle.fd < 0) throw_read_error(path, errno);
  struct stat info {};
  if (::fstat(handle.fd, &info) != 0) throw_read_error(path, errno);
  if (S_ISDIR(info.st_mode)) throw_read_error(path, EISDIR);
  if (!S_ISREG(info.st_mode)) throw FileError("cannot read {}: not a regular file", printable(path, 4096));
  file.size_ = info.st_size;
  file.device_ = info.st_dev;
  file.inode_ = info.st_ino;
  if (file.size_ == 0) return file;
  void* map = ::mmap(nullptr, static_cast<std::size_t>(file.size_), PROT_READ, MAP_SHARED, handle.fd, 0);
  if (map == MAP_FAILED) throw_read_error(path, errno);
  file.data_ = static_cast<const std::byte*>(map);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  reset();
  path_ = std::move(other.path_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  device_ = other.device_;
  inode_ = other.inode_;
  return *this;
}

MappedFile::~MappedFile() { reset(); }

void MappedFile::reset() noexcept {
  if (data_) ::munmap(const_cast<std::byte*>(data_), static_cast<std::size_t>(size_));
  data_ = nullptr;
}

void MappedFile::fetch(int64 offset, int64 count) const {
  if (count == 0) return;
  check(offset >= 0 && count > 0 && offset <= size_ - count, "{}: fetch of {} bytes at {} in a map of {}", path_, count,
        offset, size_);
  const int64 page = ::sysconf(_SC_PAGESIZE);
  const int64 begin = offset / page * page;
  const auto length = static_cast<std::size_t>(offset + count - begin);
  if (::madvise(const_cast<std::byte*>(data_) + begin, length, MADV_POPULATE_READ) == 0) return;
  if (errno == EFAULT) throw FileError("cannot read {}: it was cut short or its device failed", printable(path_, 4096));
  if (errno != EINVAL) throw_read_error(path_, errno);
  struct stat info {};
  const bool same = ::stat(path_.c_str(), &info) == 0 && info.st_dev == device_ && info.st_ino == inode_;
  if (same && info.st_size < offset + count)
    throw FileError("cannot read {}: it was cut short from {} to {} bytes", printable(path_, 4096), size_,
                    static_cast<int64>(info.st_size));
}

void MappedFile::release(int64 offset, int64 count) const {
  if (count <= 0) return;
  const int64 page = ::sysconf(_SC_PAGESIZE);
  const int64 begin = offset / page * page;
  const int64 end = std::min(size_, offset + count);
  ::madvise(const_cast<std::byte*>(data_) + begin, static_cast<std::size_t>(end - begin), MADV_DONTNEED);
}

std::string read_text_file(const std::string& path, int64 limit) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) throw_read_error(path, errno);
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) throw_read_error(path, errno);
  if (S_ISDIR(info.st_mode)) throw_read_error(path, EISDIR);
  std::string content;
  if (S_ISREG(info.st_mode)) content.reserve(static_cast<std::size_t>(std::min<int64>(info.st_size, limit)) + 1);
  // Pipes have no size: read until the end, never past the limit.
  constexpr std::size_t kPiece = 1 << 16;
  while (true) {
    const std::size_t at = content.size();
    content.resize(at + kPiece);
    const ssize_t n = ::read(file.fd, content.data() + at, kPiece);
    const int error = errno;
    content.resize(at + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    if (n < 0 && error == EINTR) continue;
    if (n < 0) throw_read_error(path, error);
    if (n == 0) return content;
    if (static_cast<int64>(content.size()) > limit)
      throw FileError("cannot read {}: longer than {} bytes, more than such a file can need", printable(path, 4096),
                      limit);
  }
}

void write_file_atomic(const std::string& path, std::string_view content) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    throw TrainError("cannot write {}: not a regular file", printable(path, 4096));
  static std::atomic<int64> counter = 0;
  const fs::path target(path);
  const std::string temporary = (target.parent_path() / fmt::format(".{}.tmp-{}-{}", target.filename().string(),
                                                                    static_cast<int64>(::getpid()), ++counter))
                                    .string();
  try {
    OutputFile file = OutputFile::create(temporary);
    file.write_at(0, content.data(), static_cast<int64>(content.size()));
    file.sync();
    file.close();
    rename_path(temporary, path);
  } catch (const TrainError& error) {
    ::unlink(temporary.c_str());
    // The user knows the final name, not the temporary one.
    std::string text = error.what();
    if (const auto at = text.find(temporary); at != std::string::npos) text.replace(at, temporary.size(), path);
    throw TrainError("{}", text);
  }
  sync_directory(parent_of(path));
}

OutputFile OutputFile::create(const std::string& path) {
  OutputFile file;
  file.path_ = path;
  file.fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file.fd_ < 0) throw_write_error(path, errno);
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept { *this = std::move(other); }

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  if (this == &other) return *this;
  if (fd_ >= 0) ::close(fd_);
  path_ = std::move(other.path_);
  fd_ = std::exchange(other.fd_, -1);
  return *this;
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void OutputFile::reserve(int64 bytes) {
  if (bytes <= 0) return;
  int rc;
  do {
    rc = ::fallocate(fd_, 0, 0, bytes);
  } while (rc != 0 && errno == EINTR);
  if (rc != 0 && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL) throw_write_error(path_, errno);
}

void OutputFile::write_at(int64 offset, const void* data, int64 bytes) {
  write_all(path_, fd_, offset, static_cast<const char*>(data), bytes);
}

void OutputFile::sync() {
  if (::fsync(fd_) != 0) throw_write_error(path_, errno);
}

void OutputFile::close() {
  if (::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) throw_write_error(path_, errno);
}

void rename_path(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw_write_error(to, errno);
}

void sync_directory(const std::string& dir) {
  const Descriptor handle{::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (handle.fd < 0) throw_write_error(dir, errno);
  // Some network file systems can't sync a directory and say EINVAL; there is nothing more to do there.
  if (::fsync(handle.fd) != 0 && errno != EINVAL && errno != ENOTSUP) throw_write_error(dir, errno);
}

void copy_file_synced(const std::string& from, const std::string& to) {
  const Descriptor source{::open(from.c_str(), O_RDONLY | O_CLOEXEC)};
  if (source.fd < 0) throw_read_error(from, errno);
  OutputFile target = OutputFile::create(to);
  std::vector<char> piece(1 << 20);
  int64 offset = 0;
  while (true) {
    const ssize_t n = ::read(source.fd, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_read_error(from, errno);
    if (n == 0) break;
    target.write_at(offset, piece.data(), n);
    offset += n;
  }
  target.sync();
  target.close();
}

void make_directories(const std::string& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (!error && !fs::is_directory(dir, error)) error = std::make_error_code(std::errc::not_a_directory);
  if (error) throw_write_error(dir, error.value());
}

void check_writable(const std::string& dir, std::string_view key) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (!error && !fs::is_directory(dir, error)) error = std::make_error_code(std::errc::not_a_directory);
  int code = error.value();
  if (code == 0) {
    const std::string probe = (fs::path(dir) / fmt::format(".probe.tmp-{}-0", static_cast<int64>(::getpid()))).string();
    const Descriptor file{::open(probe.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)};
    if (file.fd < 0 || ::pwrite(file.fd, "x", 1, 0) != 1) code = errno;
    ::unlink(probe.c_str());
  }
  if (code != 0)
    throw ConfigError("{}: cannot write in {}: {}; choose a directory that can be written", key, printable(dir, 4096),
                      reason(code));
}

}  // namespace megatoken
