#include "report/loss_curve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace megatoken {
namespace {

TEST(LossCurve, FallsFromTheTopLeftToTheBottomRight) {
  EXPECT_EQ(draw_curve({3, 2, 1}, 1, 10, 3),
            "    3.0000 |*\n"
            "    2.0000 | *\n"
            "    1.0000 |  *\n"
            "           +---\n"
            "      step  1 3");
}

TEST(LossCurve, AnyNumberOfValuesFitsTheWidth) {
  std::vector<double> many(100000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = std::sin(static_cast<double>(i) / 1e4);
  std::string chart = draw_curve(many, 7, 40, 5);
  for (std::size_t begin = 0; begin < chart.size();) {
    const auto end = std::min(chart.find('\n', begin), chart.size());
    EXPECT_LE(end - begin, 52u);
    begin = end + 1;
  }
  EXPECT_NE(chart.find("100006"), std::string::npos);
}

TEST(LossCurve, NothingToDraw) {
  EXPECT_EQ(draw_curve({}, 1, 10, 3), "");
  EXPECT_EQ(draw_curve({1}, 1, 10, 3), "");
  EXPECT_EQ(draw_curve({NAN, INFINITY}, 1, 10, 3), "");
  EXPECT_NE(draw_curve({1, 1, NAN, 1}, 1, 10, 3), "");  // a flat line with a gap
}

}  // namespace
}  // namespace megatoken
