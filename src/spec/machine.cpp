#include "spec/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "base/error.h"

namespace megatoken {
namespace {

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

// A limit of a cgroup file; nullopt for "max", for anything that is no number, and for v1's "unlimited" (near 2^63).
std::optional<int64> limit_of(const std::string& path) {
  const auto line = first_line(path);
  if (!line) return std::nullopt;
  int64 value = 0;
  const auto [end, error] = std::from_chars(line->data(), line->data() + line->size(), value);
  if (error != std::errc() || value <= 0 || value >= (int64{1} << 60)) return std::nullopt;
  return value;
}

std::optional<int64> total_memory(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  std::string key, unit;
  int64 value = 0;
  while (file >> key >> value >> unit) {
    if (key == "MemTotal:") return value * 1024;
    file.ignore(4096, '\n');
    file.clear();
  }
  return std::nullopt;
}

// One line of /proc/self/cgroup: "0::/a/b" (v2) or "4:memory:/a/b" (v1; several controllers are joined by commas).
struct CgroupLine {
  std::string controllers, path;
};
std::vector<CgroupLine> cgroups(const std::string& root) {
  std::vector<CgroupLine> result;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    result.push_back({line.substr(first + 1, second - first - 1), line.substr(second + 1)});
  }
  return result;
}

bool has_controller(const std::string& controllers, const std::string& name) {
  return ("," + controllers + ",").find("," + name + ",") != std::string::npos;
}

// Calls f with the directory of a cgroup and of each one above it, up to the mount. Inside a container the path of
// /proc/self/cgroup may not exist under the mount, which then is the container's own group.
template <typename F>
void for_each_level(const std::string& mount, std::string path, F f) {
  while (path.size() > 1) {
    f(mount + path);
    path.erase(path.rfind('/'));
  }
  f(mount);
}

std::optional<int64> cgroup_memory(const std::string& root) {
  std::optional<int64> least;
  const auto take = [&](const std::optional<int64>& limit) {
    if (limit && (!least || *limit < *least)) least = limit;
  };
  for (const CgroupLine& line : cgroups(root)) {
    if (line.controllers.empty())
      for (const char* mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"})
        for_each_level(root + mount, line.path, [&](const std::string& dir) {
          take(limit_of(dir + "/memory.max"));
          take(limit_of(dir + "/memory.high"));
        });
    else if (has_controller(line.controllers, "memory"))
      for_each_level(root + "/sys/fs/cgroup/memory", line.path,
                     [&](const std::string& dir) { take(limit_of(dir + "/memory.limit_in_bytes")); });
  }
  return least;
}

// Cores that a CPU quota amounts to.
std::optional<double> cgroup_cores(const std::string& root) {
  std::optional<double> least;
  const auto take = [&](double quota, double period) {
    if (quota > 0 && period > 0 && (!least || quota / period < *least)) least = quota / period;
  };
  for (const CgroupLine& line : cgroups(root)) {
    if (line.controllers.empty()) {
      for_each_level(root + "/sys/fs/cgroup", line.path, [&](const std::string& dir) {
        std::istringstream fields(first_line(dir + "/cpu.max").value_or(""));
        double quota = 0, period = 0;
        if (fields >> quota >> period) take(quota, period);
      });
    } else if (has_controller(line.controllers, "cpu")) {
      for (const char* mount : {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"})
        for_each_level(root + mount, line.path, [&](const std::string& dir) {
          const auto quota = limit_of(dir + "/cpu.cfs_quota_us"), period = limit_of(dir + "/cpu.cfs_period_us");
          if (quota && period) take(static_cast<double>(*quota), static_cast<double>(*period));
        });
    }
  }
  return least;
}

int64 usable_cores(const std::string& root) {
  int64 cores = std::max<int64>(1, sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cores = std::max(1, CPU_COUNT(&set));
  if (const auto quota = cgroup_cores(root))
    cores = std::min(cores, std::max<int64>(1, std::llround(std::ceil(*quota))));
  return cores;
}

}  // namespace

Machine detect_machine(const std::string& root) {
  const auto total = total_memory(root);
  if (!total) throw TrainError("{}/proc/meminfo: MemTotal can't be read", root);
  Machine machine;
  machine.host_bytes = *total;
  if (const auto limit = cgroup_memory(root); limit && *limit < *total) {
    machine.host_bytes = *limit;
    machine.host_limited_by_cgroup = true;
  }
  machine.device_bytes = machine.host_bytes;
  machine.cores = usable_cores(root);
  return machine;
}

}  // namespace megatoken
