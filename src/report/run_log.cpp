#include "report/run_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace megatoken {
namespace {

std::string lines_to_keep(const std::string& path, std::int64_t keep_steps) {
  if (keep_steps < 0) return {};
  std::ifstream in(path);
  std::string kept, line;
  while (std::getline(in, line)) {
    if (in.eof()) break;  // no line end: torn
    const auto parsed = nlohmann::json::parse(line, nullptr, false);
    if (!parsed.is_object()) continue;
    if (parsed.value("step", std::int64_t{0}) <= keep_steps) kept += line + '\n';
  }
  return kept;
}

}  // namespace

RunLog::RunLog(const std::string& output_dir, std::int64_t keep_steps) : path_(output_dir + "/trainer_log.jsonl") {
  const std::string kept = lines_to_keep(path_, keep_steps);
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_APPEND, 0644);
  if (fd_ < 0) throw TrainError("{}: cannot be written: {}", path_, std::strerror(errno));
  if (!kept.empty() && ::write(fd_, kept.data(), kept.size()) != static_cast<ssize_t>(kept.size()))
    throw TrainError("{}: cannot be written: {}", path_, std::strerror(errno));
}

RunLog::~RunLog() {
  if (fd_ >= 0) ::close(fd_);
}

void RunLog::write(const nlohmann::ordered_json& line) {
  const std::string text = line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
  const ssize_t written = ::write(fd_, text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size()))
    throw TrainError("{}: cannot be written: {}", path_, written < 0 ? std::strerror(errno) : "the disk is full");
}

}  // namespace megatoken
