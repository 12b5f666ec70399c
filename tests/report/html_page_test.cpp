#include "report/html_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace megatoken {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(HtmlPage, NeedsNothingFromOutsideAndEscapesAllText) {
  Page page;
  page.title = "<script>alert(1)</script>";
  page.facts = {{"a & b", "\"c\""}};
  page.figures = {{"Loss", "<svg></svg>", "note <1>", true}, {"left out", "", "", false}};
  page.tables = {{"Buffers", {"name"}, {{"<q>"}}}, {"empty", {"name"}, {}}};
  page.texts = {{"Configuration", "seed: 1\n<x>"}};
  const std::string html = html_page(page);
  for (const char* part :
       {"&lt;script&gt;", "a &amp; b", "&quot;c&quot;", "<svg></svg>", "note &lt;1&gt;", "<td>&lt;q&gt;</td>",
        "seed: 1\n&lt;x&gt;", "prefers-color-scheme:dark", "name=\"viewport\""})
    EXPECT_THAT(html, HasSubstr(part));
  for (const char* part : {"<script", "left out", "empty", "http:", "https:", "url(", "@import", " src="})
    EXPECT_THAT(html, Not(HasSubstr(part)));
}

}  // namespace
}  // namespace megatoken
