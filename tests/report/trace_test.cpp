#include "report/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace megatoken {
namespace {

Trace small_trace() {
  Trace trace;
  trace.process = "rank 3";
  trace.process_id = 3;
  trace.tracks = {"compute", "exchange"};
  trace.slices = {{0, "say \"x\"\n", "gemm", 1.5, 4.0, {{"TFLOP/s", 12.5}}}, {1, "gather", "exchange", 2, 3, {}}};
  trace.lifetimes = {{"device memory", "q", 1, 4, 100, 0}, {"device memory", "k", 2, 3, 50, 128}};
  return trace;
}

TEST(Trace, IsJsonThatHoldsEverySliceOnItsTrack) {
  const auto json = nlohmann::json::parse(trace_json(small_trace()));
  std::map<std::string, int> phases;
  for (const auto& event : json.at("traceEvents")) {
    EXPECT_EQ(event.at("pid"), 3);
    ++phases[event.at("ph").get<std::string>()];
    if (event.at("name") == "say \"x\"\n") {
      EXPECT_EQ(event.at("tid"), 0);
      EXPECT_DOUBLE_EQ(event.at("ts").get<double>(), 1.5);
      EXPECT_DOUBLE_EQ(event.at("dur").get<double>(), 2.5);
      EXPECT_DOUBLE_EQ(event.at("args").at("TFLOP/s").get<double>(), 12.5);
    }
  }
  EXPECT_EQ(phases["X"], 2);
  EXPECT_EQ(phases["b"], 2);
  EXPECT_EQ(phases["e"], 2);
}

TEST(Trace, CountsLiveBytesOverTime) {
  const auto json = nlohmann::json::parse(trace_json(small_trace()));
  std::vector<std::pair<double, int>> counted;
  for (const auto& event : json.at("traceEvents"))
    if (event.at("ph") == "C") counted.emplace_back(event.at("ts"), event.at("args").at("bytes"));
  EXPECT_EQ(counted, (std::vector<std::pair<double, int>>{{1, 100}, {2, 150}, {3, 100}, {4, 0}}));
}

}  // namespace
}  // namespace megatoken
