// output_dir/trainer_log.jsonl: one JSON object a line, on disk before the next step begins.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/dtype.h"

namespace megatoken {

class RunLog {
 public:
  // Appends to the file. Lines of steps after `keep_steps` (left by a run that was stopped after its last checkpoint) and
  // a torn last line are dropped first; keep_steps < 0 starts anew. TrainError naming the file when it cannot be written.
  RunLog(const std::string& output_dir, std::int64_t keep_steps);
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;
  ~RunLog();

  // Non-finite numbers become null. TrainError on a full disk.
  void write(const nlohmann::ordered_json& line);
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace megatoken
