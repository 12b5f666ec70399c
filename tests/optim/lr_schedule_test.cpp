#include "optim/lr_schedule.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"

namespace megatoken {
namespace {

TEST(LrSchedule, EqualsTransformersStepByStep) {
  const auto golden = nlohmann::json::parse(std::ifstream(std::string(MEGATOKEN_TEST_DATA) + "/golden/schedules.json"));
  const double base = golden["base_lr"].get<double>();
  std::set<std::string> compared;
  for (const auto& c : golden["cases"]) {
    const auto name = c["name"].get<std::string>();
    SCOPED_TRACE(name + " " + c["kwargs"].dump());
    std::map<std::string, LrSchedule::Argument> arguments;
    for (const auto& [key, value] : c["kwargs"].items()) {
      if (value.is_string())
        arguments[key] = value.get<std::string>();
      else
        arguments[key] = value.get<double>();
    }
    const auto warmup = c["num_warmup_steps"].get<int64>(), total = c["num_training_steps"].get<int64>();
    if (c.contains("fails") || name == "reduce_lr_on_plateau" || name == "greedy") {
      EXPECT_THROW(LrSchedule(name, arguments, base, warmup, total), ConfigError);
      continue;
    }
    const LrSchedule schedule(name, arguments, base, warmup, total);
    for (std::size_t i = 0; i < c["lr"].size(); ++i)
      EXPECT_NEAR(schedule.at(static_cast<int64>(i)), c["lr"][i].get<double>(), 1e-15 + 1e-12 * base) << "step " << i;
    compared.insert(name);
  }
  EXPECT_EQ(compared.size(), 10u);
}

}  // namespace
}  // namespace megatoken
