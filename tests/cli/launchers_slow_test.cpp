// The launchers that are already there. mpirun is found in PATH; torchrun and accelerate in MEGATOKEN_TEST_LAUNCHERS
// (the bin folder of a Python environment with torch and accelerate) or in PATH. Skipped where they aren't.
#include "cli/golden_run.h"
#include "cli/process_job.h"

namespace megatoken::testing {
namespace {

class Launchers : public ProcessTest {};

std::string find_program(const std::string& name) {
  const char* const launchers = std::getenv("MEGATOKEN_TEST_LAUNCHERS");
  std::istringstream path((launchers == nullptr ? "" : launchers + std::string(":")) + std::getenv("PATH"));
  for (std::string folder; std::getline(path, folder, ':');)
    if (access((folder + "/" + name).c_str(), X_OK) == 0) return folder + "/" + name;
  return "";
}

// Two ranks by `launcher`, given these words before the program's own.
void expect_launched(const std::string& launcher, std::vector<std::string> words) {
  const std::string program = find_program(launcher);
  if (program.empty()) GTEST_SKIP() << launcher << " is not there";
  const GoldenRun run;
  ASSERT_EQ(testing::run(run.command("threads", {"--num_processes", "2", "--cp_size", "2"})).status, 0);
  words.push_back(MEGATOKEN_PROGRAM);
  for (const std::string& word : run.train("launched", {"--cp_size", "2"})) words.push_back(word);
  ProcessJob job;
  job.start(words, {}, ".", program);
  ASSERT_EQ(job.wait(0, std::chrono::seconds(120)), 0) << job.all_err();
  run.expect_same("threads", "launched");
}

TEST_F(Launchers, Mpirun) { expect_launched("mpirun", {"--allow-run-as-root", "--oversubscribe", "-np", "2"}); }

TEST_F(Launchers, Torchrun) { expect_launched("torchrun", {"--standalone", "--nproc-per-node", "2", "--no-python"}); }

TEST_F(Launchers, TorchrunWithAPort) {
  expect_launched("torchrun", {"--master-port", std::to_string(free_port()), "--nproc-per-node", "2", "--no-python"});
}

TEST_F(Launchers, AccelerateLaunch) {
  expect_launched("accelerate",
                  {"launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no",
                   "--dynamo_backend", "no", "--main_process_port", std::to_string(free_port()), "--no_python"});
}

}  // namespace
}  // namespace megatoken::testing
