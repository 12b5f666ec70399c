#include "report/html_page.h"

#include "report/svg_chart.h"

namespace megatoken {
namespace {

// Series colours: Okabe and Ito's palette for all kinds of colour vision, lightened where the ground is dark.
constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--ground:#fff;--card:#f6f7f9;--ink:#1c2024;--soft:#5b6570;--rule:#d9dee4;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc79a7;--c4:#b58900;--c5:#56b4e9;--c6:#8a8f98;--c7:#e6c229}
@media (prefers-color-scheme:dark){:root{--ground:#14171a;--card:#1d2125;--ink:#e6e9ec;--soft:#9aa4ae;--rule:#353b42;
--c0:#4aa8e8;--c1:#f08a3c;--c2:#2fc79a;--c3:#e3a0c6;--c4:#d8b43a;--c5:#8fd0f5;--c6:#a3a9b2;--c7:#f0dc6a}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:64rem;background:var(--ground);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
h1{font-size:1.5rem;margin:.5rem 0 0;overflow-wrap:anywhere}
h2{font-size:1rem;margin:0 0 .5rem}
p{margin:.25rem 0;color:var(--soft)}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.75rem;margin:1rem 0}
dl div{background:var(--card);border-radius:.5rem;padding:.5rem .75rem}
dt{font-size:.8rem;color:var(--soft)}
dd{margin:0;font-weight:600;overflow-wrap:anywhere}
main{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,22rem),1fr));gap:1rem}
figure,section{margin:0;background:var(--card);border-radius:.5rem;padding:.75rem;min-width:0}
.wide,section{grid-column:1/-1}
figcaption{font-size:.85rem;color:var(--soft)}
svg{display:block;width:100%;height:auto;font-size:12px}
.wide svg{min-width:36rem}
text{fill:var(--ink)}
.grid{stroke:var(--rule)}
.back{fill:var(--rule);opacity:.5}
.end{text-anchor:end}
.mid{text-anchor:middle}
.name{fill:var(--soft)}
.line{fill:none!important;stroke-width:1.8;stroke-linejoin:round}
.c0{fill:var(--c0);stroke:var(--c0)}.c1{fill:var(--c1);stroke:var(--c1)}.c2{fill:var(--c2);stroke:var(--c2)}
.c3{fill:var(--c3);stroke:var(--c3)}.c4{fill:var(--c4);stroke:var(--c4)}.c5{fill:var(--c5);stroke:var(--c5)}
.c6{fill:var(--c6);stroke:var(--c6)}.c7{fill:var(--c7);stroke:var(--c7)}
rect{stroke:none!important}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;padding:.2rem .6rem .2rem 0;border-bottom:1px solid var(--rule);font-variant-numeric:tabular-nums}
pre{margin:0;overflow-x:auto;font-size:.85rem}
@media print{body{max-width:none}figure,section{break-inside:avoid}}
)";

std::string cells(const std::vector<std::string>& values, const char* tag) {
  std::string row = "<tr>";
  for (const std::string& value : values) row += std::string("<") + tag + ">" + escape_html(value) + "</" + tag + ">";
  return row + "</tr>\n";
}

}  // namespace

std::string html_page(const Page& page) {
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
      escape_html(page.title) + "</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>" + kStyle +
      "</style>\n</head>\n<body>\n<h1>" + escape_html(page.title) + "</h1>\n<p>" + escape_html(page.subtitle) +
      "</p>\n<dl>\n";
  for (const auto& [name, value] : page.facts)
    html += "<div><dt>" + escape_html(name) + "</dt><dd>" + escape_html(value) + "</dd></div>\n";
  html += "</dl>\n<main>\n";
  for (const Figure& figure : page.figures) {
    if (figure.svg.empty()) continue;
    html += std::string("<figure") + (figure.wide ? " class=\"wide\"" : "") + "><h2>" + escape_html(figure.title) +
            "</h2><div class=\"scroll\">" + figure.svg + "</div>";
    if (!figure.note.empty()) html += "<figcaption>" + escape_html(figure.note) + "</figcaption>";
    html += "</figure>\n";
  }
  for (const PageTable& table : page.tables) {
    if (table.rows.empty()) continue;
    html +=
        "<section><h2>" + escape_html(table.title) + "</h2><div class=\"scroll\"><table>\n" + cells(table.header, "th");
    for (const auto& row : table.rows) html += cells(row, "td");
    html += "</table></div></section>\n";
  }
  for (const auto& [title, text] : page.texts)
    html += "<section><h2>" + escape_html(title) + "</h2><pre>" + escape_html(text) + "</pre></section>\n";
  return html + "</main>\n</body>\n</html>\n";
}

}  // namespace megatoken
