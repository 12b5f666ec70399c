// What tests of whole runs share.
#pragma once

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace megatoken {

namespace fs = std::filesystem;

struct TemporaryDirectory {
  std::string path;
  TemporaryDirectory() {
    std::string name = (fs::temp_directory_path() / "megatoken-train-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~TemporaryDirectory() { fs::remove_all(path); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
};

// The training lines of a run's log.
inline std::vector<nlohmann::json> read_log(const std::string& dir) {
  std::vector<nlohmann::json> lines;
  std::ifstream in(dir + "/trainer_log.jsonl");
  for (std::string line; std::getline(in, line);) {
    auto parsed = nlohmann::json::parse(line);
    if (parsed.contains("loss")) lines.push_back(std::move(parsed));
  }
  return lines;
}

inline double relative(double a, double b) { return b == 0 ? std::abs(a) : std::abs(a - b) / std::abs(b); }

}  // namespace megatoken
