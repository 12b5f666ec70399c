// output_dir/report.html: what a run did, as one page.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "step/timeline.h"
#include "train/job.h"

namespace megatoken {

class RunPage {
 public:
  // The page is made from the job and the lines of log_path (trainer_log.jsonl), so a resumed run's has all its steps.
  RunPage(const Job& job, int64 total_steps, std::string log_path);

  // The step whose timeline the page shows; the last one set counts.
  void set_timeline(Timeline timeline, int64 step, double seconds);
  // Writes the page whole; TrainError naming the file when that fails.
  void write();
  // write(), when the last one is half a minute ago.
  void write_when_due();
  const std::string& path() const { return path_; }

 private:
  struct Profiled {
    Timeline timeline;
    int64 step = 0;
    double seconds = 0;
  };
  const Job& job_;
  int64 total_steps_;
  std::string log_path_, path_;
  std::optional<Profiled> profiled_;
  std::optional<std::chrono::steady_clock::time_point> written_;
};

}  // namespace megatoken
