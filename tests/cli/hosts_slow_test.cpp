// Ranks on two hosts: network namespaces of this one, joined by a cable that can be cut. Needs root and ip (iproute2).
#include "cli/golden_run.h"
#include "cli/process_job.h"

namespace megatoken::testing {
namespace {

class Hosts : public ProcessTest {};

using ::testing::Each;
using ::testing::HasSubstr;

class TwoHosts {
 public:
  TwoHosts() {
    const std::string id = std::to_string(getpid());
    for (const char* end : {"a", "b"}) {
      names_.push_back("mt" + id + end);
      there_ = shell("ip netns add " + names_.back()) && there_;
    }
    there_ = there_ && shell("ip link add " + cable(0) + " netns " + names_[0] + " type veth peer name " + cable(1) +
                             " netns " + names_[1]);
    for (std::size_t host = 0; host < 2 && there_; ++host) {
      const std::string ip = "ip -n " + names_[host];
      there_ = shell(ip + " link set lo up") && shell(ip + " addr add " + address(host) + "/24 dev " + cable(host)) &&
               shell(ip + " link set " + cable(host) + " up");
    }
  }
  ~TwoHosts() {
    for (const std::string& name : names_) shell("ip netns del " + name);
  }
  bool there() const { return there_; }
  std::string address(std::size_t host) const { return "10.83.77." + std::to_string(host + 1); }
  void cut() const { EXPECT_TRUE(shell("ip -n " + names_[1] + " link set " + cable(1) + " down")); }

  // Starts the program on a host, which has a name of its own.
  void start(ProcessJob& job, std::size_t host, const std::vector<std::string>& arguments,
             const Variables& variables) const {
    std::vector<std::string> words = {
        "netns",          "exec", names_[host], "unshare",
        "--uts",          "sh",   "-c",         "hostname " + name(host) + " && exec \"$0\" \"$@\"",
        MEGATOKEN_PROGRAM};
    words.insert(words.end(), arguments.begin(), arguments.end());
    job.start(words, variables, ".", "ip");
  }
  static std::string name(std::size_t host) { return host == 0 ? "hosta" : "hostb"; }

 private:
  static bool shell(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }
  std::string cable(std::size_t host) const { return "v" + names_[host]; }
  std::vector<std::string> names_;
  bool there_ = true;
};

Variables variables_of(const TwoHosts& hosts, int rank, int size) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(size)},
          {"MASTER_ADDR", hosts.address(0)},
          {"MASTER_PORT", "29517"}};
}

TEST_F(Hosts, TrainToTheSameBitsAsThreads) {
  const TwoHosts hosts;
  if (!hosts.there()) GTEST_SKIP() << "no network namespaces here (needs root and iproute2)";
  const GoldenRun run;
  ASSERT_EQ(testing::run(run.command("threads", {"--num_processes", "4", "--cp_size", "2"})).status, 0);
  {
    ProcessJob job;
    for (int r = 0; r < 4; ++r)
      hosts.start(job, static_cast<std::size_t>(r / 2), run.train("ranks", {"--cp_size", "2"}),
                  variables_of(hosts, r, 4));
    ASSERT_THAT(job.wait(), Each(0)) << job.all_err();
    run.expect_same("threads", "ranks");
  }
  ProcessJob job;
  for (std::size_t host = 0; host < 2; ++host)
    hosts.start(job, host,
                run.train("machines", {"--num_processes", "4", "--cp_size", "2", "--num_machines", "2",
                                       "--machine_rank", std::to_string(host), "--main_process_ip", hosts.address(0),
                                       "--main_process_port", "29518"}),
                {});
  ASSERT_THAT(job.wait(), Each(0)) << job.all_err();
  run.expect_same("threads", "machines");
}

TEST_F(Hosts, ACutCableEndsTheJobOnBothWithinAMinute) {
  const TwoHosts hosts;
  if (!hosts.there()) GTEST_SKIP() << "no network namespaces here (needs root and iproute2)";
  const GoldenRun run("save_strategy: \"no\"\n");
  ProcessJob job;
  for (int r = 0; r < 2; ++r)
    hosts.start(job, static_cast<std::size_t>(r), run.train("out", {"--max_steps", "1000000", "--cp_size", "2"}),
                variables_of(hosts, r, 2));
  for (int i = 0; i < 3000 && run.steps("out").size() < 3; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_GE(run.steps("out").size(), 3u) << job.all_err();
  hosts.cut();
  EXPECT_THAT(job.wait(std::chrono::seconds(60)), Each(5)) << job.all_err();
  EXPECT_THAT(job.err(0), HasSubstr("rank 1 (host hostb"));
  EXPECT_THAT(job.err(1), HasSubstr("rank 0 (host hosta"));
}

}  // namespace
}  // namespace megatoken::testing
