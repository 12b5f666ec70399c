#include "report/svg_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

namespace megatoken {
namespace {

using testing::HasSubstr;
using testing::Not;

// Every coordinate lies inside the viewBox.
void expect_inside(const std::string& svg) {
  std::smatch box;
  ASSERT_TRUE(std::regex_search(svg, box, std::regex("viewBox=\"0 0 ([0-9.]+) ([0-9.]+)\"")));
  const double width = std::stod(box[1]), height = std::stod(box[2]);
  const std::regex number("(c?[xy][12]?)=\"(-?[0-9.]+)\"");
  for (std::sregex_iterator it(svg.begin(), svg.end(), number), end; it != end; ++it) {
    const double value = std::stod((*it)[2]);
    EXPECT_GE(value, 0) << it->str();
    EXPECT_LE(value, std::string((*it)[1]).find('x') != std::string::npos ? width : height) << it->str();
  }
}

TEST(LineChart, DrawsWhatIsFinite) {
  const std::string svg =
      line_chart({"loss",
                  "step",
                  {{"training", {{1, 3}, {2, NAN}, {3, 2}, {4, 1}}, false}, {"evaluation", {{2, 2.5}}, true}},
                  false});
  expect_inside(svg);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, HasSubstr("evaluation"));
  EXPECT_EQ(std::count(svg.begin(), svg.end(), 'M'), 2);  // a gap: the pen is set down twice
  EXPECT_EQ(line_chart({"loss", "step", {{"training", {{1, NAN}}, false}}, false}), "");
  EXPECT_EQ(line_chart({"loss", "step", {}, false}), "");
}

TEST(LineChart, AnyRangeAndAnyNumberOfPoints) {
  for (const double scale : {1e-12, 1e-5, 1.0, 3e4, 2e9, 1e18}) {
    Series many{"x", {}, false};
    for (int i = 0; i < 100000; ++i) many.points.emplace_back(i, scale * std::sin(i / 5000.0));
    const std::string svg = line_chart({"x", "step", {many}, false});
    expect_inside(svg);
    EXPECT_LT(svg.size(), 20000u);
  }
  expect_inside(line_chart({"x", "step", {{"x", {{7, 0}}, false}}, true}));           // one point, no extent
  expect_inside(line_chart({"x", "step", {{"x", {{1, 5}, {2, 5}}, false}}, false}));  // a constant
}

TEST(BarChart, BarsAreInProportion) {
  const std::string svg = bar_chart("memory", {{"plan <a>", 2, "2 GiB"}, {"measured", 1, "1 GiB"}, {"none", 0, "0"}});
  expect_inside(svg);
  EXPECT_THAT(svg, HasSubstr("plan &lt;a&gt;"));
  EXPECT_THAT(svg, HasSubstr("width=\"424.0\""));
  EXPECT_THAT(svg, HasSubstr("width=\"212.0\""));
  EXPECT_EQ(bar_chart("memory", {}), "");
}

TEST(LaneChart, AColumnShowsWhatFillsMostOfIt) {
  const Lane compute{"compute", {{0, 6, 0}, {6, 10, 1}}};
  const Lane idle{"exchange", {}};
  const std::string svg = lane_chart("step", {compute, idle}, {"products", "copies", "waiting"}, 10, "s");
  expect_inside(svg);
  EXPECT_THAT(svg, HasSubstr("class=\"c0\" x=\"8.00\" y=\"18\" width=\"470.40\""));
  EXPECT_THAT(svg, HasSubstr("class=\"c1\" x=\"478.40\" y=\"18\" width=\"313.60\""));
  EXPECT_THAT(svg, Not(HasSubstr("waiting")));
  EXPECT_EQ(lane_chart("step", {idle}, {"products"}, 10, "s"), "");
  EXPECT_EQ(lane_chart("step", {compute}, {"products", "copies"}, 0, "s"), "");
}

}  // namespace
}  // namespace megatoken
