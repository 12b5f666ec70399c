#include "spec/lr_schedule_keys.h"

#include <cmath>

#include "base/error.h"
#include "spec/config_scalar.h"

namespace megatoken {
namespace {

constexpr double kMost = 1e15;
constexpr std::string_view kShapes = "linear|cosine|1-sqrt";

constexpr ScheduleArgument kCosine[] = {{"num_cycles", 0, 1e6}};
constexpr ScheduleArgument kRestarts[] = {{"num_cycles", 1, 1e6, true}};
constexpr ScheduleArgument kPolynomial[] = {{"lr_end", 0, 1e6}, {"power", 0, 1e3}};
constexpr ScheduleArgument kInverseSqrt[] = {{"timescale", 1, kMost, true}};
constexpr ScheduleArgument kMinimum[] = {{"num_cycles", 0, 1e6}, {"min_lr", 0, 1e6}, {"min_lr_rate", 0, 1}};
constexpr ScheduleArgument kWarmMinimum[] = {
    {"num_cycles", 0, 1e6}, {"min_lr", 0, 1e6}, {"min_lr_rate", 0, 1}, {"warmup_lr_rate", 0, 1}};
constexpr ScheduleArgument kStable[] = {{"num_decay_steps", 0, kMost, true, true},
                                        {"num_stable_steps", 0, kMost, true},
                                        {"warmup_type", 0, 0, false, false, kShapes},
                                        {"decay_type", 0, 0, false, false, kShapes},
                                        {"min_lr_ratio", 0, 1},
                                        {"num_cycles", 0, 1e6}};

constexpr ScheduleInfo kSchedules[] = {
    {"linear", {}},
    {"cosine", kCosine},
    {"cosine_with_restarts", kRestarts},
    {"polynomial", kPolynomial},
    {"constant", {}},
    {"constant_with_warmup", {}},
    {"inverse_sqrt", kInverseSqrt},
    {"cosine_with_min_lr", kMinimum},
    {"cosine_warmup_with_min_lr", kWarmMinimum},
    {"warmup_stable_decay", kStable},
    {"reduce_lr_on_plateau", {}, false},
    {"greedy", {}, false},
};

bool has_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const auto bar = words.find('|');
    if (words.substr(0, bar) == word) return true;
    words = bar == std::string_view::npos ? std::string_view{} : words.substr(bar + 1);
  }
  return false;
}

void check_argument(const ScheduleArgument& argument, const SchedulerArgument& value, std::string_view place) {
  if (!argument.words.empty()) {
    const std::string* word = std::get_if<std::string>(&value);
    if (word == nullptr || !has_word(argument.words, *word))
      throw ConfigError("{}: {} must be one of {}", place, argument.name, argument.words);
    return;
  }
  const double* number = std::get_if<double>(&value);
  if (number == nullptr) throw ConfigError("{}: {} must be a number", place, argument.name);
  if (!(*number >= argument.smallest && *number <= argument.largest))
    throw ConfigError("{}: {} must be from {} to {}, not {}", place, argument.name, argument.smallest, argument.largest,
                      *number);
  if (argument.whole && *number != std::floor(*number))
    throw ConfigError("{}: {} must be a whole number, not {}", place, argument.name, *number);
}

}  // namespace

const ScheduleInfo* find_schedule(std::string_view name) {
  for (const ScheduleInfo& schedule : kSchedules)
    if (schedule.name == name) return &schedule;
  return nullptr;
}

std::string schedule_names() {
  std::string names;
  for (const ScheduleInfo& schedule : kSchedules)
    if (schedule.supported) names += (names.empty() ? "" : ", ") + std::string(schedule.name);
  return names;
}

void check_schedule(const TrainingOptions& training, std::string_view place) {
  const ScheduleInfo* schedule = find_schedule(training.lr_scheduler_type);
  check(schedule != nullptr, "unknown schedule {}", training.lr_scheduler_type);
  const auto& given = training.lr_scheduler_kwargs;
  for (const auto& [name, value] : given) {
    const ScheduleArgument* known = nullptr;
    std::string names;
    for (const ScheduleArgument& argument : schedule->arguments) {
      names += (names.empty() ? "" : ", ") + std::string(argument.name);
      if (argument.name == name) known = &argument;
    }
    if (known == nullptr)
      throw ConfigError("{}: the {} schedule has no argument {} (it has {})", place, schedule->name, one_line(name),
                        names.empty() ? "none" : names);
    check_argument(*known, value, place);
  }
  for (const ScheduleArgument& argument : schedule->arguments)
    if (argument.required && !given.contains(std::string(argument.name)))
      throw ConfigError("{}: the {} schedule needs {}", place, schedule->name, argument.name);

  const bool has_minimum = schedule->name.find("min_lr") != std::string_view::npos;
  if (has_minimum && given.contains("min_lr") == given.contains("min_lr_rate"))
    throw ConfigError("{}: the {} schedule needs either min_lr or min_lr_rate", place, schedule->name);
  if (schedule->name == "polynomial") {
    const auto end = given.find("lr_end");
    const double lr_end = end == given.end() ? 1e-7 : std::get<double>(end->second);
    if (!(lr_end < training.learning_rate))
      throw ConfigError("{}: lr_end {} must be less than learning_rate {}", place, lr_end, training.learning_rate);
  }
}

}  // namespace megatoken
