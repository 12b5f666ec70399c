#include "report/loss_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace megatoken {
namespace {

std::vector<double> columns_of(const std::vector<double>& values, std::size_t width) {
  const std::size_t count = std::min(width, values.size());
  std::vector<double> columns;
  for (std::size_t c = 0; c < count; ++c) {
    const std::size_t begin = c * values.size() / count, end = std::max(begin + 1, (c + 1) * values.size() / count);
    double sum = 0;
    int finite = 0;
    for (std::size_t i = begin; i < end; ++i)
      if (std::isfinite(values[i])) {
        sum += values[i];
        ++finite;
      }
    columns.push_back(finite > 0 ? sum / finite : std::numeric_limits<double>::quiet_NaN());
  }
  return columns;
}

}  // namespace

std::string draw_curve(const std::vector<double>& values, long long first_step, int width, int height) {
  if (values.size() < 2 || width < 2 || height < 2) return "";
  const std::vector<double> columns = columns_of(values, static_cast<std::size_t>(width));
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const double v : columns)
    if (std::isfinite(v)) {
      low = std::min(low, v);
      high = std::max(high, v);
    }
  if (!(low <= high)) return "";
  const double span = high > low ? high - low : 1;
  std::string chart;
  for (int row = 0; row < height; ++row) {
    const double level = high - span * row / (height - 1);
    chart += fmt::format("{:10.4f} |", level);
    for (const double v : columns) {
      const bool here = std::isfinite(v) && std::lround((high - v) / span * (height - 1)) == row;
      chart += here ? '*' : ' ';
    }
    while (chart.back() == ' ') chart.pop_back();
    chart += '\n';
  }
  chart += fmt::format("{:>10} +{}\n", "", std::string(columns.size(), '-'));
  const std::string first = std::to_string(first_step),
                    last = std::to_string(first_step + static_cast<long long>(values.size()) - 1);
  const std::size_t gap = columns.size() > first.size() + last.size() ? columns.size() - first.size() - last.size() : 1;
  chart += fmt::format("{:>10}  {}{}{}", "step", first, std::string(gap, ' '), last);
  return chart;
}

}  // namespace megatoken
