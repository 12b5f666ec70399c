#include "optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace megatoken {
namespace {

constexpr double kPi = std::numbers::pi;

// Half a cosine wave from 1 to 0 for cycles = 0.5.
double wave(double cycles, double progress) { return 0.5 * (1.0 + std::cos(kPi * cycles * 2.0 * progress)); }

double shape(const std::string& name, bool rising, double cycles, double progress) {
  if (name == "linear") return rising ? progress : 1.0 - progress;
  if (name == "cosine") return rising ? 0.5 * (1.0 - std::cos(kPi * progress)) : wave(cycles, progress);
  return 1.0 - std::sqrt(rising ? 1.0 - progress : progress);  // "1-sqrt"
}

}  // namespace

LrSchedule::LrSchedule(const std::string& name, const std::map<std::string, Argument>& arguments, double learning_rate,
                       int64 warmup_steps, int64 total_steps)
    : name_(name), arguments_(arguments), learning_rate_(learning_rate), warmup_(warmup_steps), total_(total_steps) {
  static const char* const kKnown[] = {"linear",   "cosine",       "cosine_with_restarts", "polynomial",
                                       "constant", "inverse_sqrt", "constant_with_warmup", "cosine_with_min_lr",
                                       "cosine_warmup_with_min_lr", "warmup_stable_decay"};
  if (std::find(std::begin(kKnown), std::end(kKnown), name) == std::end(kKnown))
    throw ConfigError("lr_scheduler_type: {} is not followed", name);
  if (name == "polynomial" && warmup_ == total_)
    throw ConfigError("lr_scheduler_type: polynomial has no steps to decay over, warm-up takes all {}", total_);
}

double LrSchedule::number(const std::string& key, double fallback) const {
  const auto found = arguments_.find(key);
  return found == arguments_.end() ? fallback : std::get<double>(found->second);
}

double LrSchedule::at(int64 step) const { return learning_rate_ * factor(step); }

double LrSchedule::factor(int64 step) const {
  const auto s = static_cast<double>(step);
  const auto warmup = static_cast<double>(warmup_), total = static_cast<double>(total_);
  if (name_ == "constant") return 1;
  const double cycles = number("num_cycles", name_ == "cosine_with_restarts" ? 1 : 0.5);
  const double least =
      arguments_.contains("min_lr") ? number("min_lr", 0) / learning_rate_ : number("min_lr_rate", number("min_lr_ratio", 0));

  if (name_ == "warmup_stable_decay") {
    const auto word = [&](const char* key, const char* fallback) {
      const auto found = arguments_.find(key);
      return found == arguments_.end() ? std::string(fallback) : std::get<std::string>(found->second);
    };
    const double decay = number("num_decay_steps", 0);
    const double stable = number("num_stable_steps", total - warmup - decay);
    if (s < warmup) {
      const double rising = shape(word("warmup_type", "linear"), true, cycles, s / std::max(1.0, warmup));
      return std::max(0.0, rising * (1.0 - least) + least);
    }
    if (s < warmup + stable) return 1;
    if (s >= warmup + stable + decay) return least;
    const double falling = shape(word("decay_type", "cosine"), false, cycles, (s - warmup - stable) / std::max(1.0, decay));
    return std::max(0.0, falling * (1.0 - least) + least);
  }
  if (name_ == "cosine_warmup_with_min_lr") {
    if (s < warmup) {
      if (!arguments_.contains("warmup_lr_rate")) return (s + 1.0) / std::max(1.0, warmup);
      const double first = number("warmup_lr_rate", 0);
      return first + (1.0 - first) * s / std::max(1.0, warmup - 1);
    }
    const double progress = (s - warmup + 1.0) / std::max(1.0, total - warmup);
    return std::max(0.0, wave(cycles, progress) * (1 - least) + least);
  }

  if (s < warmup) return s / std::max(1.0, warmup);
  const double progress = (s - warmup) / std::max(1.0, total - warmup);
  if (name_ == "constant_with_warmup") return 1;
  if (name_ == "linear") return std::max(0.0, (total - s) / std::max(1.0, total - warmup));
  if (name_ == "cosine" || name_ == "cosine_with_min_lr") return std::max(0.0, wave(cycles, progress) * (1 - least) + least);
  if (name_ == "cosine_with_restarts") {
    if (progress >= 1.0) return 0;
    return std::max(0.0, 0.5 * (1.0 + std::cos(kPi * std::fmod(cycles * progress, 1.0))));
  }
  if (name_ == "inverse_sqrt") {
    const double timescale = number("timescale", warmup_ > 0 ? warmup : 10'000);
    return 1.0 / std::sqrt((s + timescale - warmup) / timescale);
  }
  // polynomial
  const double end = number("lr_end", 1e-7);
  if (s > total) return end / learning_rate_;
  const double remaining = 1 - (s - warmup) / (total - warmup);
  return ((learning_rate_ - end) * std::pow(remaining, number("power", 1)) + end) / learning_rate_;
}

}  // namespace megatoken
