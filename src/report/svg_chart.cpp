#include "report/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

namespace megatoken {
namespace {

constexpr double kWidth = 440, kHeight = 240;  // of a line chart: about what a phone shows at full size
constexpr double kLeft = 58, kRight = 12, kTop = 12, kBottom = 34;
constexpr std::size_t kMostPoints = 400;
constexpr int kColours = 8;  // classes c0 ... c7

std::string open_svg(double width, double height, const std::string& label) {
  return fmt::format("<svg viewBox=\"0 0 {:g} {:g}\" role=\"img\" aria-label=\"{}\">", width, height,
                     escape_html(label));
}

// A step of 1, 2 or 5 times a power of ten that cuts `range` into at most `most` pieces.
double nice_step(double range, int most) {
  const double least = range / most;
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  return 10 * power;
}

std::string tick_text(double value, double step) {
  const double size = std::abs(value);
  if (size < step * 1e-9) return "0";
  if (size >= 1e15 || step < 1e-4) return fmt::format("{:.3g}", value);
  for (const auto& [unit, name] : {std::pair{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, "k"}})
    if (size >= unit) return fmt::format("{:g}{}", value / (unit == 1e4 ? 1e3 : unit), name);
  const int digits = std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 6);
  return fmt::format("{:.{}f}", value, digits);
}

// Points averaged in groups of equal size, so that a run of any length draws in constant space.
std::vector<std::pair<double, double>> thinned(const std::vector<std::pair<double, double>>& points) {
  if (points.size() <= kMostPoints) return points;
  std::vector<std::pair<double, double>> thin;
  for (std::size_t group = 0; group < kMostPoints; ++group) {
    const std::size_t begin = group * points.size() / kMostPoints, end = (group + 1) * points.size() / kMostPoints;
    double x = 0, y = 0;
    for (std::size_t i = begin; i < end; ++i) x += points[i].first, y += points[i].second;
    const auto count = static_cast<double>(end - begin);
    thin.emplace_back(x / count, y / count);
  }
  return thin;
}

struct Extent {
  double low = INFINITY, high = -INFINITY;
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  void widen() {
    if (high > low) return;
    const double around = low == 0 ? 1 : std::abs(low) * 0.05;
    low -= around;
    high += around;
  }
};

// Maps data onto the plot area.
struct Frame {
  Extent x, y;
  double at_x(double value) const { return kLeft + (value - x.low) / (x.high - x.low) * (kWidth - kLeft - kRight); }
  double at_y(double value) const {
    return kHeight - kBottom - (value - y.low) / (y.high - y.low) * (kHeight - kTop - kBottom);
  }
};

std::string axes(const Frame& frame, const std::string& x_name) {
  std::string svg;
  const double step_y = nice_step(frame.y.high - frame.y.low, 5);
  for (double v = std::ceil(frame.y.low / step_y - 1e-9) * step_y; v <= frame.y.high + step_y * 1e-9; v += step_y)
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{:g}\" x2=\"{:g}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text x=\"{:g}\" y=\"{:.1f}\" class=\"end\">{}</text>",
        kLeft, kWidth - kRight, frame.at_y(v), frame.at_y(v), kLeft - 6, frame.at_y(v) + 4, tick_text(v, step_y));
  const double step_x = nice_step(frame.x.high - frame.x.low, 6);
  for (double v = std::ceil(frame.x.low / step_x - 1e-9) * step_x; v <= frame.x.high + step_x * 1e-9; v += step_x)
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:g}\" class=\"mid\">{}</text>", frame.at_x(v), kHeight - kBottom + 16,
                       tick_text(v, step_x));
  svg += fmt::format("<text x=\"{:g}\" y=\"{:g}\" class=\"mid name\">{}</text>", (kLeft + kWidth - kRight) / 2,
                     kHeight - 4, escape_html(x_name));
  return svg;
}

std::string draw(const Series& series, const Frame& frame, int colour) {
  std::string svg, line;
  bool pen_down = false;
  for (const auto& [x, y] : thinned(series.points)) {
    if (!std::isfinite(x) || !std::isfinite(y)) {
      pen_down = false;
      continue;
    }
    if (series.dots || series.points.size() == 1)
      svg +=
          fmt::format("<circle class=\"c{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"><title>{:g}: {:.6g}</title></circle>",
                      colour, frame.at_x(x), frame.at_y(y), x, y);
    else
      line += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", frame.at_x(x), frame.at_y(y));
    pen_down = true;
  }
  if (!line.empty()) svg += fmt::format("<path class=\"line c{}\" d=\"{}\"/>", colour, line);
  return svg;
}

// Names in a row; wraps at `width`. Returns the svg and the height it takes.
std::pair<std::string, double> legend(const std::vector<std::pair<int, std::string>>& names, double width, double top) {
  std::string svg;
  double x = 8, y = top + 12;
  for (const auto& [colour, name] : names) {
    const double needed = 22 + 6.6 * static_cast<double>(name.size());
    if (x > 8 && x + needed > width) x = 8, y += 18;
    svg += fmt::format(
        "<rect class=\"c{}\" x=\"{:g}\" y=\"{:g}\" width=\"10\" height=\"10\"/><text x=\"{:g}\" y=\"{:g}\">{}</text>",
        colour, x, y - 9, x + 14, y, escape_html(name));
    x += needed + 8;
  }
  return {svg, y + 6 - top};
}

}  // namespace

std::string escape_html(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string line_chart(const LineChart& chart) {
  Frame frame;
  for (const Series& series : chart.series)
    for (const auto& [x, y] : thinned(series.points)) {
      if (!std::isfinite(x) || !std::isfinite(y)) continue;
      frame.x.add(x);
      frame.y.add(y);
    }
  if (frame.x.low > frame.x.high) return "";
  if (chart.from_zero) frame.y.add(0);
  frame.x.widen();
  frame.y.widen();
  std::string svg = axes(frame, chart.x_name);
  std::vector<std::pair<int, std::string>> names;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const int colour = static_cast<int>(i) % kColours;
    svg += draw(chart.series[i], frame, colour);
    names.emplace_back(colour, chart.series[i].name);
  }
  double height = kHeight;
  if (names.size() > 1) {
    const auto [row, taken] = legend(names, kWidth, kHeight);
    svg += row;
    height += taken;
  }
  return open_svg(kWidth, height, chart.label) + svg + "</svg>";
}

std::string bar_chart(const std::string& label, const std::vector<Bar>& bars) {
  if (bars.empty()) return "";
  constexpr double kRow = 34, kBarTop = 16, kThick = 12;
  double most = 0;
  for (const Bar& bar : bars) most = std::max(most, bar.value);
  std::string svg;
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const double y = kRow * static_cast<double>(i);
    const double width = most > 0 ? bars[i].value / most * (kWidth - 16) : 0;
    svg += fmt::format(
        "<text x=\"8\" y=\"{:g}\">{}</text><text x=\"{:g}\" y=\"{:g}\" class=\"end\">{}</text>"
        "<rect class=\"back\" x=\"8\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\"/>"
        "<rect class=\"c0\" x=\"8\" y=\"{:g}\" width=\"{:.1f}\" height=\"{:g}\"/>",
        y + 12, escape_html(bars[i].name), kWidth - 8, y + 12, escape_html(bars[i].text), y + kBarTop, kWidth - 16,
        kThick, y + kBarTop, width, kThick);
  }
  return open_svg(kWidth, kRow * static_cast<double>(bars.size()) + 4, label) + svg + "</svg>";
}

std::string lane_chart(const std::string& label, const std::vector<Lane>& lanes,
                       const std::vector<std::string>& categories, double end, const std::string& unit) {
  constexpr std::size_t kColumns = 800;
  constexpr double kLane = 40, kLaneWidth = 784, kThick = 18;
  if (!(end > 0)) return "";
  std::string svg;
  std::vector<bool> occurs(categories.size(), false);
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    // Share of each column that each category fills.
    std::vector<std::vector<double>> filled(kColumns, std::vector<double>(categories.size(), 0.0));
    for (const Lane::Span& span : lanes[l].spans) {
      const double from = std::clamp(span.begin / end, 0.0, 1.0) * kColumns,
                   to = std::clamp(span.end / end, 0.0, 1.0) * kColumns;
      for (auto column = static_cast<std::size_t>(from); column < kColumns && static_cast<double>(column) < to;
           ++column)
        filled[column][span.category] +=
            std::min(to, static_cast<double>(column + 1)) - std::max(from, static_cast<double>(column));
    }
    const double top = kLane * static_cast<double>(l);
    svg += fmt::format(
        "<text x=\"8\" y=\"{:g}\">{}</text><rect class=\"back\" x=\"8\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\"/>",
        top + 13, escape_html(lanes[l].name), top + kThick, kLaneWidth, kThick);
    const auto category_at = [&](std::size_t column) -> std::optional<std::size_t> {
      const auto& shares = filled[column];
      double sum = 0;
      for (const double share : shares) sum += share;
      if (sum < 0.05) return std::nullopt;
      return static_cast<std::size_t>(std::max_element(shares.begin(), shares.end()) - shares.begin());
    };
    for (std::size_t column = 0; column < kColumns;) {
      const auto category = category_at(column);
      std::size_t next = column + 1;
      while (next < kColumns && category_at(next) == category) ++next;
      if (category) {
        occurs[*category] = true;
        constexpr double kScale = kLaneWidth / static_cast<double>(kColumns);
        svg += fmt::format("<rect class=\"c{}\" x=\"{:.2f}\" y=\"{:g}\" width=\"{:.2f}\" height=\"{:g}\"/>",
                           *category % kColours, 8 + kScale * static_cast<double>(column), top + kThick,
                           kScale * static_cast<double>(next - column), kThick);
      }
      column = next;
    }
  }
  std::vector<std::pair<int, std::string>> names;
  for (std::size_t c = 0; c < categories.size(); ++c)
    if (occurs[c]) names.emplace_back(static_cast<int>(c) % kColours, categories[c]);
  if (names.empty()) return "";
  double height = kLane * static_cast<double>(lanes.size());
  svg += fmt::format("<text x=\"8\" y=\"{:g}\">0</text><text x=\"792\" y=\"{:g}\" class=\"end\">{:.4g} {}</text>",
                     height + 12, height + 12, end, escape_html(unit));
  const auto [row, taken] = legend(names, 800, height + 18);
  height += 18 + taken;
  return open_svg(800, height, label) + svg + row + "</svg>";
}

}  // namespace megatoken
