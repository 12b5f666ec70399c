// What a person sees on the terminal: the summary before step 1, progress, step and evaluation lines.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "report/progress_line.h"
#include "train/job.h"

namespace megatoken {

// The table of a plan: peaks, the largest buffers, levers.
std::string plan_table(const PlannedRun& plan);
// Predicted time of a step and its parts, a line each.
std::string price_table(const PlannedRun& plan);

// Speaks on rank 0 only; silent elsewhere. On a terminal a progress bar with the time left and the layer and phase of
// the step at hand; piped, plain lines. All of it ASCII without colours, so that any terminal and locale will do.
class RunReport {
 public:
  RunReport(const Job& job, int64 total_steps, bool speaks);
  void begin(int64 step, int64 steps_per_epoch);
  // step: how many are done. The micro-batch from 0.
  void micro_step(int64 step, int64 micro, int64 micro_steps);
  void updating();    // the step's micro-batches are done
  void evaluating();  // until evaluation()
  // A new iteration of a loop of the step (Rank::watch).
  void came_to(std::string_view loop);
  bool shows_progress() const { return speaks_ && terminal_; }
  void step(const nlohmann::ordered_json& line, bool print);
  void evaluation(const nlohmann::ordered_json& line);
  void saved(int64 step);
  void stopped(int64 step);
  void finished(int64 step);

 private:
  void begin_phase(std::string phase, int64 parts);
  void draw(bool now);
  void clear();
  double seconds_left() const;

  const Job& job_;
  int64 total_steps_;
  bool speaks_;
  bool terminal_;
  int64 first_step_ = 0;
  double started_ = 0;
  int64 done_ = 0;
  std::vector<double> losses_;
  ProgressState progress_;
  int64 forward_layers_ = 0, backward_layers_ = 0;  // of the micro-batch at hand, begun
  double forward_share_;                            // of a micro-batch's time
  double step_started_ = 0, drawn_at_ = 0;
  bool drawn_ = false;
};

}  // namespace megatoken
