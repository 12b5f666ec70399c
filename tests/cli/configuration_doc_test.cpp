// docs/configuration.md holds the key table as the program prints it.
#include "cli/help_keys.h"
#include "cli_test_support.h"

namespace megatoken {
namespace {

TEST(ConfigurationDoc, ReferenceIsUpToDate) {
  const std::string text = testing::read_file(std::string(MEGATOKEN_TEST_DATA) + "/../docs/configuration.md");
  const std::string begin = "<!-- keys: megatoken train --help-keys=markdown -->\n\n", end = "<!-- end of keys -->\n";
  const auto from = text.find(begin), to = text.find(end);
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  EXPECT_EQ(text.substr(from + begin.size(), to - from - begin.size()), keys_as_markdown() + "\n");
}

}  // namespace
}  // namespace megatoken
