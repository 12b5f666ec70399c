// A rank that is stopped: found out by its silence, which takes some seconds.
#include "cli/golden_run.h"
#include "cli/process_job.h"

namespace megatoken::testing {
namespace {

class StoppedRank : public ProcessTest {};

TEST_F(StoppedRank, EndsTheJobWithinAMinute) {
  for (const std::size_t victim : {0, 1}) {
    const GoldenRun run("save_strategy: \"no\"\n");
    ProcessJob job;
    job.start_ranks(2, run.train("out", {"--max_steps", "1000000", "--cp_size", "2"}));
    for (int i = 0; i < 3000 && run.steps("out").size() < 3; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_GE(run.steps("out").size(), 3u) << job.all_err();
    job.signal(victim, SIGSTOP);
    EXPECT_EQ(job.wait(1 - victim, std::chrono::seconds(60)), 5) << job.all_err();
    job.signal(victim, SIGCONT);  // it is no orphan: it learns that it was given up
    EXPECT_EQ(job.wait(victim, std::chrono::seconds(60)), 5) << job.all_err();
    EXPECT_THAT(job.err(0), ::testing::HasSubstr(victim == 1 ? "rank 1 (host" : "rank "));
  }
}

}  // namespace
}  // namespace megatoken::testing
