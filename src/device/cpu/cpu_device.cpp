#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "device/cpu/cpu_stream.h"

namespace megatoken {
namespace {

constexpr int64 kAlignment = 256;
constexpr int64 kHugePage = int64{2} << 20;
// From here on memory comes straight from the kernel: pages count as resident when they are touched, not before, and
// go back at release.
constexpr int64 kMapFrom = int64{4} << 20;

int64 round_up(int64 value, int64 multiple) { return (value + multiple - 1) / multiple * multiple; }

[[noreturn]] void refuse(int64 bytes, const std::string& what, int error) {
  throw FitError("not enough host memory for {}: {:.2f} GiB asked for ({})", what,
                 static_cast<double>(bytes) / (int64{1} << 30), std::strerror(error));
}

// A mapping that begins on a huge page. Whole huge pages are asked for; the last, part page stays a row of small ones.
Memory map_pages(int64 bytes, const std::string& what) {
  const int64 page = 4096;
  if (bytes > INT64_MAX - 2 * kHugePage) refuse(bytes, what, ENOMEM);
  const int64 length = round_up(bytes, page);
  void* raw = ::mmap(nullptr, static_cast<std::size_t>(length + kHugePage), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) refuse(bytes, what, errno);
  auto* base = static_cast<std::byte*>(raw);
  const auto address = reinterpret_cast<std::uintptr_t>(raw);
  const auto head = static_cast<int64>((kHugePage - address % kHugePage) % kHugePage);
  std::byte* data = base + head;
  if (head > 0) ::munmap(base, static_cast<std::size_t>(head));
  if (kHugePage > head) ::munmap(data + length, static_cast<std::size_t>(kHugePage - head));
  ::madvise(data, static_cast<std::size_t>(length / kHugePage * kHugePage), MADV_HUGEPAGE);  // a hint: may be refused
  return Memory(data, bytes, [length](void* p) { ::munmap(p, static_cast<std::size_t>(length)); });
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads) : threads_(threads) { check(threads >= 1, "a CPU device of {} threads", threads); }
  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string name() const override { return "cpu"; }
  int index() const override { return 0; }
  std::string hardware_id() const override { return ""; }
  Memory allocate(int64 bytes, const std::string& what) override {
    check(bytes >= 0, "{}: allocation of {} bytes", what, bytes);
    if (bytes == 0) return Memory();
    if (bytes >= kMapFrom) return map_pages(bytes, what);
    void* data = std::aligned_alloc(kAlignment, static_cast<std::size_t>(round_up(bytes, kAlignment)));
    if (data == nullptr) refuse(bytes, what, ENOMEM);
    return Memory(data, bytes, [](void* p) { std::free(p); });
  }
  Memory allocate_host(int64 bytes, const std::string& what) override { return allocate(bytes, what); }
  std::unique_ptr<Stream> create_stream(StreamMode mode) override {
    if (mode == StreamMode::own_thread) return std::make_unique<WorkerStream>();
    return std::make_unique<InlineStream>(threads_);
  }

 private:
  int threads_;
};

}  // namespace

std::unique_ptr<Device> create_cpu_device(int threads) { return std::make_unique<CpuDevice>(threads); }

}  // namespace megatoken
