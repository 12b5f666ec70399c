// Learning-rate schedules of transformers (optimization.py, 5.24) by their names in configuration files.
#pragma once

#include <map>
#include <string>
#include <variant>

#include "base/dtype.h"

namespace megatoken {

class LrSchedule {
 public:
  using Argument = std::variant<double, std::string>;

  // name, arguments: lr_scheduler_type and lr_scheduler_kwargs, as the configuration's reader has checked them.
  // ConfigError for a schedule that isn't followed or an argument that makes it meaningless (division by zero).
  LrSchedule(const std::string& name, const std::map<std::string, Argument>& arguments, double learning_rate,
             int64 warmup_steps, int64 total_steps);

  // The rate of optimizer step `step`, counted from 0, in float64 as torch's LambdaLR computes it.
  double at(int64 step) const;

 private:
  double factor(int64 step) const;
  double number(const std::string& key, double fallback) const;

  std::string name_;
  std::map<std::string, Argument> arguments_;
  double learning_rate_;
  int64 warmup_;
  int64 total_;
};

}  // namespace megatoken
