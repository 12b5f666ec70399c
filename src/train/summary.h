// What a person sees on the terminal: the summary before step 1, progress, step and evaluation lines.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/job.h"

namespace megatoken {

// The table of a plan: peaks, the largest buffers, levers.
std::string plan_table(const PlannedRun& plan);
// Predicted time of a step and its parts, a line each.
std::string price_table(const PlannedRun& plan);

// Speaks on rank 0 only; silent elsewhere. On a terminal a progress bar with the time left; piped, plain lines.
class RunReport {
 public:
  RunReport(const Job& job, int64 total_steps, bool speaks);
  void begin(int64 step, int64 steps_per_epoch);
  void micro_step(int64 step, int64 micro, int64 micro_steps);
  void step(const nlohmann::ordered_json& line, bool print);
  void evaluation(const nlohmann::ordered_json& line);
  void saved(int64 step);
  void stopped(int64 step);
  void finished(int64 step);

 private:
  void draw(const std::string& text);
  void clear();

  const Job& job_;
  int64 total_steps_;
  bool speaks_;
  bool terminal_;
  int64 first_step_ = 0;
  double started_ = 0;
  int64 done_ = 0;
  std::vector<double> losses_;
  bool drawn_ = false;
};

}  // namespace megatoken
