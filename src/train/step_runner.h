// Executes the programs of a planned run on one rank: a plan per shape, all inside the one arena.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "step/executing_context.h"
#include "step/step_ops.h"
#include "train/planned_run.h"

namespace megatoken {

class StepRunner {
 public:
  // device and run must outlive the runner.
  StepRunner(Device& device, const OpTable& table, const PlannedRun& run);

  // program runs to its finish(). key names the shape: equal keys have equal buffers. A shape seen for the first time
  // is counted, fitted into the arena (FitError when it cannot be) and checked for races before it runs.
  void run(const std::string& key, const Plan& planned, const std::function<void(StepOps&)>& program);

  // As ExecutingContext::watch, of every program that runs.
  void watch(std::function<void(std::string_view loop)> watcher) { context_.watch(std::move(watcher)); }

  // Keeps the timeline of the programs that run until it is taken, one after the other on one clock.
  void record_timeline();
  Timeline take_timeline();

  int64 arena_bytes(Place place) const { return arena_.bytes(place); }

 private:
  const OpTable& table_;
  Arena arena_;
  ExecutingContext context_;
  std::optional<Timeline> recorded_;
  std::chrono::steady_clock::time_point recording_since_;
  std::map<std::string, std::shared_ptr<const Plan>> plans_;
};

}  // namespace megatoken
