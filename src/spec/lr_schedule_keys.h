// The learning-rate schedules of transformers by name, and the arguments each takes.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "spec/run_config.h"

namespace megatoken {

struct ScheduleArgument {
  std::string_view name;
  double smallest, largest;  // of a number
  bool whole = false;
  bool required = false;
  std::string_view words = {};  // not a number but one of these, separated by '|'
};

struct ScheduleInfo {
  std::string_view name;
  std::span<const ScheduleArgument> arguments;
  bool supported = true;  // false: it follows a metric
};

const ScheduleInfo* find_schedule(std::string_view name);
std::string schedule_names();  // of those supported, separated by ", "

// Throws ConfigError "PLACE: ..." when lr_scheduler_kwargs don't suit lr_scheduler_type.
void check_schedule(const TrainingOptions& training, std::string_view place);

}  // namespace megatoken
