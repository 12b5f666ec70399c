#include "device/cuda/pinned_memory.h"

#include <cuda_runtime_api.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "base/byte_text.h"
#include "base/error.h"
#include "device/cuda/cuda_error.h"

namespace megatoken {
namespace {

constexpr int64 kHugePage = int64{2} << 20;
constexpr int64 kSmallPage = 4096;

int usable_cores() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

// Makes the pages resident. Every small page is touched: huge pages may have been refused.
void touch(std::byte* data, int64 bytes) {
  const int64 pieces = std::clamp<int64>(bytes / (int64{64} << 20), 1, usable_cores());
  const int64 piece = (bytes / pieces / kHugePage + 1) * kHugePage;
  std::vector<std::thread> threads;
  for (int64 first = 0; first < bytes; first += piece) {
    threads.emplace_back([=] {
      for (int64 at = first; at < std::min(bytes, first + piece); at += kSmallPage)
        *reinterpret_cast<volatile std::byte*>(data + at) = std::byte{0};
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::string locked_memory_hint(int64 bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  if (static_cast<int64>(limit.rlim_cur) >= bytes) return "";
  return fmt::format("; the locked-memory limit is {:.2f} GiB: raise it (ulimit -l unlimited, or --ulimit memlock=-1)",
                     gib(static_cast<int64>(limit.rlim_cur)));
}

}  // namespace

Memory allocate_pinned(int64 bytes, const std::string& what) {
  check(bytes >= 0, "{}: allocation of {} bytes", what, bytes);
  if (bytes == 0) return Memory();
  if (bytes > INT64_MAX / 2) throw FitError("not enough host memory for {}: {:.2f} GiB asked for", what, gib(bytes));
  const int64 length = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* raw = ::mmap(nullptr, static_cast<std::size_t>(length + kHugePage), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED)
    throw FitError("not enough host memory for {}: {:.2f} GiB asked for ({})", what, gib(bytes), std::strerror(errno));
  auto* base = static_cast<std::byte*>(raw);
  const auto head =
      static_cast<int64>((kHugePage - static_cast<int64>(reinterpret_cast<std::uintptr_t>(raw)) % kHugePage) % kHugePage);
  std::byte* data = base + head;
  if (head > 0) ::munmap(base, static_cast<std::size_t>(head));
  if (head < kHugePage) ::munmap(data + length, static_cast<std::size_t>(kHugePage - head));
  ::madvise(data, static_cast<std::size_t>(length), MADV_HUGEPAGE);  // a hint: may be refused
  const auto unmap = [length](std::byte* p) { ::munmap(p, static_cast<std::size_t>(length)); };
  std::unique_ptr<std::byte, decltype(unmap)> mapping(data, unmap);
  touch(data, length);
  const cudaError_t error = cudaHostRegister(data, static_cast<std::size_t>(length), cudaHostRegisterPortable);
  if (error != cudaSuccess) {
    cudaGetLastError();
    throw FitError("{} of {:.2f} GiB can't be pinned: {}{}", what, gib(bytes), describe(error), locked_memory_hint(length));
  }
  return Memory(mapping.release(), bytes, [length](void* p) {
    cudaHostUnregister(p);
    ::munmap(p, static_cast<std::size_t>(length));
  });
}

}  // namespace megatoken
