#include "report/progress_line.h"

#include <gtest/gtest.h>

namespace megatoken {
namespace {

TEST(ProgressLine, DropsWhatMattersLeast) {
  const ProgressState state{3, 12, 2, 4, "backward", 17, 36, 0.5, 2460};
  EXPECT_EQ(progress_line(state, 120),
            "[############............] step 3/12 micro-batch 2/4 backward layer 17/36 left 41m00s");
  EXPECT_EQ(progress_line(state, 80), "step 3/12 micro-batch 2/4 backward layer 17/36 left 41m00s");
  EXPECT_EQ(progress_line(state, 40), "step 3/12 backward 17/36 left 41m00s");
  EXPECT_EQ(progress_line(state, 30), "step 3/12 left 41m00s");
  EXPECT_EQ(progress_line(state, 12), "step 3/12");
  EXPECT_EQ(progress_line(state, 5), "step");
  EXPECT_EQ(progress_line(state, 0), "");
}

TEST(ProgressLine, OfOneMicroBatchBetweenPhases) {
  EXPECT_EQ(progress_line({1, 12, 1, 1, "", 0, 0, 0, {}}, 80), "[........................] step 1/12");
  EXPECT_EQ(progress_line({12, 12, 1, 1, "update", 0, 0, 2, 0}, 80),
            "[########################] step 12/12 update left 0s");
}

// Never wider than the terminal, whatever the numbers.
TEST(ProgressLine, Fits) {
  const ProgressState state{1234567, 9876543, 999, 1000, "evaluation", 128, 128, 0.99, 1e18};
  for (int columns = 0; columns < 200; ++columns) {
    const std::string line = progress_line(state, columns);
    EXPECT_LE(line.size(), static_cast<std::size_t>(std::max(columns - 1, 0)));
    for (const char c : line) EXPECT_TRUE(c >= ' ' && c <= '~');
  }
}

TEST(ProgressLine, Durations) {
  EXPECT_EQ(duration_text(0.4), "0s");
  EXPECT_EQ(duration_text(59.6), "1m00s");
  EXPECT_EQ(duration_text(3723), "1h02m");
  EXPECT_EQ(duration_text(-5), "0s");
  EXPECT_EQ(duration_text(0.0 / 0.0), duration_text(1e300));
}

}  // namespace
}  // namespace megatoken
