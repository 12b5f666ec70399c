// The driver and the CUDA libraries as the program will find them: opened at run time, so no CUDA header is needed
// here. Signatures: CUDA driver API (cuInit, cuDeviceGet...), cudnnGetVersion, cublasLtGetVersion, ncclGetVersion.
#include <dlfcn.h>

#include <array>
#include <memory>

#include "base/error.h"
#include "cli/doctor_checks.h"
#include "device/device.h"

namespace megatoken {
namespace {

constexpr int kComputeCapabilityMajor = 75;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR is the next
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

struct Closer {
  void operator()(void* handle) const { dlclose(handle); }
};
using Library = std::unique_ptr<void, Closer>;

Library open_first(std::initializer_list<const char*> names, std::string& found) {
  for (const char* name : names)
    if (Library library{dlopen(name, RTLD_NOW | RTLD_LOCAL)}) {
      found = name;
      return library;
    }
  return nullptr;
}

template <typename Function>
Function* symbol(const Library& library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library.get(), name));
}

void add_devices(const Library& driver, int count, std::vector<Finding>& findings) {
  auto* get = symbol<int(int*, int)>(driver, "cuDeviceGet");
  auto* name_of_device = symbol<int(char*, int, int)>(driver, "cuDeviceGetName");
  auto* total = symbol<int(std::size_t*, int)>(driver, "cuDeviceTotalMem_v2");
  auto* attribute = symbol<int(int*, int, int)>(driver, "cuDeviceGetAttribute");
  if (get == nullptr || name_of_device == nullptr || total == nullptr || attribute == nullptr) return;
  for (int i = 0; i < count; ++i) {
    int device = 0, major = 0, minor = 0;
    std::size_t bytes = 0;
    std::array<char, 128> name{};
    const bool told = get(&device, i) == 0 && name_of_device(name.data(), name.size() - 1, device) == 0 &&
                      total(&bytes, device) == 0 && attribute(&major, kComputeCapabilityMajor, device) == 0 &&
                      attribute(&minor, kComputeCapabilityMajor + 1, device) == 0;
    if (!told) {
      findings.push_back(
          {Verdict::missing, fmt::format("GPU {}: the driver can't tell what it is", i), "nvidia-smi may say more"});
      continue;
    }
    const bool old = major < 8;
    findings.push_back({old ? Verdict::missing : Verdict::ok,
                        fmt::format("GPU {}: {}, {:.1f} GiB, compute capability {}.{}", i, name.data(),
                                    static_cast<double>(bytes) / kGiB, major, minor),
                        old ? "bfloat16 needs 8.0 (Ampere) or newer" : ""});
  }
}

// A library the CUDA build opens; `version` calls its version function and says it as people do.
template <typename Version>
void add_library(std::initializer_list<const char*> names, const char* title, const char* advice, Version version,
                 std::vector<Finding>& findings) {
  std::string found;
  const Library library = open_first(names, found);
  if (library)
    findings.push_back({Verdict::ok, fmt::format("{}: {} ({})", title, version(library), found), ""});
  else
    findings.push_back({Verdict::missing, fmt::format("{}: not found ({})", title, *names.begin()), advice});
}

std::string dotted(std::size_t version, std::size_t major_unit, std::size_t minor_unit) {
  return fmt::format("{}.{}.{}", version / major_unit, version % major_unit / minor_unit, version % minor_unit);
}

}  // namespace

std::vector<Finding> check_gpus() {
  std::vector<Finding> findings;
  std::string found;
  const Library driver = open_first({"libcuda.so.1"}, found);
  if (!driver) {
    findings.push_back(
        {Verdict::note, "GPU: no NVIDIA driver (libcuda.so.1)",
         "training runs on the CPU; for a GPU install NVIDIA's driver, in a container docker run --gpus all"});
    return findings;
  }
  auto* init = symbol<int(unsigned)>(driver, "cuInit");
  auto* driver_version = symbol<int(int*)>(driver, "cuDriverGetVersion");
  auto* count_devices = symbol<int(int*)>(driver, "cuDeviceGetCount");
  int version = 0, count = 0;
  const int status = init != nullptr ? init(0) : -1;
  if (status != 0 || driver_version == nullptr || driver_version(&version) != 0 || count_devices == nullptr ||
      count_devices(&count) != 0) {
    findings.push_back({Verdict::note, fmt::format("GPU: the driver is there but finds no device (cuInit: {})", status),
                        "training runs on the CPU; nvidia-smi may say more, in a container docker run --gpus all"});
    return findings;
  }
  findings.push_back(
      {Verdict::ok,
       fmt::format("driver: CUDA {}.{}, {} GPU{}", version / 1000, version % 1000 / 10, count, count == 1 ? "" : "s"),
       ""});
  add_devices(driver, count, findings);
  if (count > 0 && cuda_device_count() == 0)
    findings.push_back({Verdict::missing, "this program finds no CUDA device although the driver does",
                        "it was built without CUDA, or for a newer driver: ./dev build --preset cuda-release"});

  add_library(
      {"libcublasLt.so.13", "libcublasLt.so.12"}, "cuBLASLt",
      "install CUDA's cuBLAS (libcublas), or set LD_LIBRARY_PATH",
      [](const Library& library) {
        auto* get = symbol<std::size_t()>(library, "cublasLtGetVersion");
        return get != nullptr ? dotted(get(), 10000, 100) : std::string("unknown version");
      },
      findings);
  add_library(
      {"libcudnn.so.9"}, "cuDNN", "install cuDNN 9 (cudnn9-cuda-13 or cudnn9-cuda-12), or set LD_LIBRARY_PATH",
      [](const Library& library) {
        auto* get = symbol<std::size_t()>(library, "cudnnGetVersion");
        return get != nullptr ? dotted(get(), 10000, 100) : std::string("unknown version");
      },
      findings);
  add_library(
      {"libnccl.so.2"}, "NCCL", "needed by more than one GPU: install libnccl2, or set LD_LIBRARY_PATH",
      [](const Library& library) {
        auto* get = symbol<int(int*)>(library, "ncclGetVersion");
        int nccl = 0;
        if (get == nullptr || get(&nccl) != 0) return std::string("unknown version");
        return dotted(static_cast<std::size_t>(nccl), 10000, 100);
      },
      findings);
  return findings;
}

}  // namespace megatoken
