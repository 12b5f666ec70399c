// Charts as SVG elements to stand in an HTML page: no script, no outside resource, colours by CSS classes (html_page.h)
// so that they follow light and dark mode, sized by their viewBox.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace megatoken {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x ascending; points that are not finite leave gaps
  bool dots = false;                              // single points instead of a line
};

struct LineChart {
  std::string label;  // for those who can't see it
  std::string x_name;
  std::vector<Series> series;
  bool from_zero = false;  // the y axis begins at 0
};
// Long series are averaged into at most 400 points. "" when no series has a finite point.
std::string line_chart(const LineChart& chart);

struct Bar {
  std::string name;
  double value = 0;
  std::string text;  // what the value reads as
};
// Horizontal bars from 0 on, in the given order. "" without bars.
std::string bar_chart(const std::string& label, const std::vector<Bar>& bars);

struct Lane {
  std::string name;
  struct Span {
    double begin = 0, end = 0;
    std::size_t category = 0;
  };
  std::vector<Span> spans;  // by begin, not overlapping
};
// What each lane did from 0 to `end`; a column is drawn in the category that fills most of it. A legend names the
// categories that occur. "" when nothing does.
std::string lane_chart(const std::string& label, const std::vector<Lane>& lanes,
                       const std::vector<std::string>& categories, double end, const std::string& unit);

// Text for HTML or SVG.
std::string escape_html(const std::string& text);

}  // namespace megatoken
