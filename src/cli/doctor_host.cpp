#include <sys/resource.h>
#include <sys/statvfs.h>

#include <cmath>
#include <fstream>
#include <random>
#include <sstream>

#include "base/error.h"
#include "cli/doctor_checks.h"
#include "device/device.h"
#include "ops/op_table.h"
#include "spec/machine.h"

namespace megatoken {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

// The value of the first "key : value" line of /proc/cpuinfo.
std::string cpuinfo(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const auto value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return "";
}

bool has_word(const std::string& text, const std::string& word) {
  std::istringstream words(text);
  for (std::string next; words >> next;)
    if (next == word) return true;
  return false;
}

std::string amount(rlim_t value) {
  const double gib = static_cast<double>(value) / kGiB;
  if (value == RLIM_INFINITY) return "unlimited";
  return gib < 1 ? fmt::format("{:.4g} MiB", gib * 1024) : fmt::format("{:.4g} GiB", gib);
}

rlim_t limit(int resource) {
  rlimit value{};
  return getrlimit(resource, &value) == 0 ? value.rlim_cur : 0;
}

// ||d - reference|| / ||reference|| of one product of random matrices, [m, k] x [k, n].
double product_error(Stream& stream, DType dtype, int64 m, int64 n, int64 k, bool transpose_b) {
  std::mt19937 random(static_cast<unsigned>(m * 31 + n * 7 + k));
  std::normal_distribution<float> normal;
  const auto elements = [](int64 count) { return std::vector<float>(static_cast<std::size_t>(count)); };
  std::vector<float> a = elements(m * k), b = elements(k * n), d = elements(m * n);
  std::vector<bf16> a16(a.size()), b16(b.size());
  for (auto* pair : {&a, &b})
    for (float& value : *pair) value = normal(random);
  if (dtype == DType::bf16) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(a16[i] = bf16(a[i]));
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(b16[i] = bf16(b[i]));
  }
  Gemm gemm;
  gemm.a = View(dtype == DType::bf16 ? static_cast<void*>(a16.data()) : a.data(), dtype, m, k);
  gemm.b = View(dtype == DType::bf16 ? static_cast<void*>(b16.data()) : b.data(), dtype, transpose_b ? n : k,
                transpose_b ? k : n);
  gemm.d = View(d.data(), DType::f32, m, n);
  gemm.transpose_b = transpose_b;
  stream.submit([&](Stream& s) { cpu_op_table().gemm(s, gemm); });
  stream.synchronize();

  double difference = 0, norm = 0;
  for (int64 i = 0; i < m; ++i)
    for (int64 j = 0; j < n; ++j) {
      double exact = 0;
      for (int64 l = 0; l < k; ++l)
        exact += static_cast<double>(a[i * k + l]) * static_cast<double>(b[transpose_b ? j * k + l : l * n + j]);
      const double got = d[i * n + j];
      difference += (got - exact) * (got - exact);
      norm += exact * exact;
    }
  return std::sqrt(difference / norm);
}

}  // namespace

std::vector<Finding> check_processor() {
  std::vector<Finding> findings;
  const std::string flags = cpuinfo("flags");
  std::string sets;
  for (const char* set : {"avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16"})
    if (has_word(flags, set)) sets += std::string(sets.empty() ? "" : " ") + set;
  const Machine machine = detect_machine();
  findings.push_back({Verdict::ok,
                      fmt::format("processor: {}, {} usable cores, {}", cpuinfo("model name"), machine.cores,
                                  sets.empty() ? "no AVX2" : sets),
                      ""});
  findings.push_back({Verdict::ok,
                      fmt::format("memory: {:.1f} GiB{}", static_cast<double>(machine.host_bytes) / kGiB,
                                  machine.host_limited_by_cgroup ? " (the limit of this cgroup)" : ""),
                      ""});
  return findings;
}

std::vector<Finding> check_products() {
  const std::unique_ptr<Device> device = create_cpu_device(1);
  const std::unique_ptr<Stream> stream = device->create_stream(StreamMode::in_order_inline);
  double worst = 0;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64 k : {1, 17, 256, 1000})
      for (const bool transpose : {false, true}) {
        const double error = product_error(*stream, dtype, 65, 129, k, transpose);
        worst = std::isfinite(error) ? std::max(worst, error) : INFINITY;
      }
  const std::string what = fmt::format("matrix products: error {:.1e} against a plain loop", worst);
  // Sums of 1000 float32 products: about 1000^0.5 x 2^-24.
  if (worst < 1e-5) return {{Verdict::ok, what, ""}};
  return {
      {Verdict::wrong, what,
       "this build computes wrong products on this processor: build with -DMEGATOKEN_MARCH=x86-64-v3 and run doctor "
       "again"}};
}

std::vector<Finding> check_limits() {
  std::vector<Finding> findings;
  const auto add = [&](bool fine, std::string what, std::string advice) {
    findings.push_back({fine ? Verdict::ok : Verdict::note, std::move(what), fine ? "" : std::move(advice)});
  };
  const rlim_t files = limit(RLIMIT_NOFILE);
  add(files >= 1024, fmt::format("open files: {}", files), "ulimit -n 4096");
  const rlim_t locked = limit(RLIMIT_MEMLOCK);
  add(locked == RLIM_INFINITY, "locked memory: " + amount(locked),
      "pinned host memory for a GPU may need more: ulimit -l unlimited, or docker run --ulimit memlock=-1");
  add(limit(RLIMIT_STACK) >= (8u << 20), "stack: " + amount(limit(RLIMIT_STACK)), "ulimit -s 8192");

  struct statvfs shared {};
  if (statvfs("/dev/shm", &shared) == 0) {
    const double gib = static_cast<double>(shared.f_blocks) * static_cast<double>(shared.f_frsize) / kGiB;
    add(gib >= 1, fmt::format("shared memory: {:.3g} GiB", gib),
        "several processes on one host with NCCL need more: docker run --shm-size=8g or --ipc=host");
  }
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string mode;
  if (std::getline(file, mode))
    add(mode.find("[never]") == std::string::npos, "huge pages: " + mode,
        "large buffers start slower: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
  return findings;
}

}  // namespace megatoken
