// A page that needs nothing but itself: styles inside, charts as SVG, no script. Reads well on a phone, in dark mode
// and on paper.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace megatoken {

struct Figure {
  std::string title;
  std::string svg;   // from svg_chart.h; "": the figure is left out
  std::string note;  // plain text under it
  bool wide = false;
};

struct PageTable {
  std::string title;
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};

struct Page {
  std::string title;
  std::string subtitle;
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<Figure> figures;
  std::vector<PageTable> tables;
  std::vector<std::pair<std::string, std::string>> texts;  // title, preformatted text
};

std::string html_page(const Page& page);

}  // namespace megatoken
