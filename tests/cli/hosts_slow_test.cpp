// Ranks on two hosts: network namespaces of this one, joined by a cable that can be cut. Needs root and ip (iproute2).
#include "cli/golden_run.h"
#include "cli/process_job.h"

namespace megatoken::testing {
namespace {

class Hosts : public ProcessTest {};

using ::testing::Each;
using ::testing::HasSubstr;

// Host 0 has a cable to each of the others and passes on what they send to each other.
class Network {
 public:
  explicit Network(std::size_t hosts) {
    for (std::size_t host = 0; host < hosts; ++host) {
      names_.push_back("mt" + std::to_string(getpid()) + "h" + std::to_string(host));
      there_ = there_ && shell("ip netns add " + names_[host]) && in(host, "link set lo up");
    }
    for (std::size_t host = 1; host < hosts; ++host)
      there_ = there_ &&
               shell("ip link add c" + std::to_string(host) + " netns " + names_[0] + " type veth peer name c0 netns " +
                     names_[host]) &&
               connect(0, "c" + std::to_string(host), address(0, host)) && connect(host, "c0", address(host, host)) &&
               in(host, "route add default via " + address(0, host));
    there_ = there_ && pass_on(true);
  }
  ~Network() {
    for (const std::string& name : names_) shell("ip netns del " + name);
  }
  bool there() const { return there_; }
  // Of host 0, as host `from` sees it.
  std::string master(std::size_t from) const { return address(0, from == 0 ? 1 : from); }
  void cut(std::size_t host) const { EXPECT_TRUE(in(host, "link set c0 down")); }
  // Whether the others reach each other; host 0 they do.
  bool pass_on(bool on) const {
    return shell("ip netns exec " + names_[0] + " sh -c 'echo " + (on ? "1" : "0") +
                 " > /proc/sys/net/ipv4/ip_forward'");
  }

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
  // As one of `size` ranks.
  void start(ProcessJob& job, std::size_t host, const std::vector<std::string>& arguments, int rank, int size) const {
    start(job, host, arguments,
          {{"RANK", std::to_string(rank)},
           {"WORLD_SIZE", std::to_string(size)},
           {"MASTER_ADDR", master(host)},
           {"MASTER_PORT", "29517"}});
  }
  static std::string name(std::size_t host) { return std::string("host") + static_cast<char>('a' + host); }

 private:
  static bool shell(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }
  bool in(std::size_t host, const std::string& command) const { return shell("ip -n " + names_[host] + " " + command); }
  bool connect(std::size_t host, const std::string& device, const std::string& address) const {
    return in(host, "addr add " + address + "/24 dev " + device) && in(host, "link set " + device + " up");
  }
  static std::string address(std::size_t host, std::size_t cable) {
    return "10.83." + std::to_string(cable) + (host == 0 ? ".1" : ".2");
  }
  std::vector<std::string> names_;
  bool there_ = true;
};

// Waits until a run is on its way.
void expect_steps(const GoldenRun& run, const ProcessJob& job) {
  for (int i = 0; i < 3000 && run.steps("out").size() < 3; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_GE(run.steps("out").size(), 3u) << job.all_err();
}

TEST_F(Hosts, TrainToTheSameBitsAsThreads) {
  const Network hosts(2);
  if (!hosts.there()) GTEST_SKIP() << "no network namespaces here (needs root and iproute2)";
  const GoldenRun run;
  ASSERT_EQ(testing::run(run.command("threads", {"--num_processes", "4", "--cp_size", "2"})).status, 0);
  {
    ProcessJob job;
    for (int r = 0; r < 4; ++r)
      hosts.start(job, static_cast<std::size_t>(r / 2), run.train("ranks", {"--cp_size", "2"}), r, 4);
    ASSERT_THAT(job.wait(), Each(0)) << job.all_err();
    run.expect_same("threads", "ranks");
  }
  ProcessJob job;
  for (std::size_t host = 0; host < 2; ++host)
    hosts.start(job, host,
                run.train("machines", {"--num_processes", "4", "--cp_size", "2", "--num_machines", "2",
                                       "--machine_rank", std::to_string(host), "--main_process_ip", hosts.master(host),
                                       "--main_process_port", "29518"}),
                {});
  ASSERT_THAT(job.wait(), Each(0)) << job.all_err();
  run.expect_same("threads", "machines");
}

TEST_F(Hosts, ACutCableEndsTheJobOnBothWithinAMinute) {
  const Network hosts(2);
  if (!hosts.there()) GTEST_SKIP() << "no network namespaces here (needs root and iproute2)";
  const GoldenRun run("save_strategy: \"no\"\n");
  ProcessJob job;
  for (int r = 0; r < 2; ++r)
    hosts.start(job, static_cast<std::size_t>(r), run.train("out", {"--max_steps", "1000000", "--cp_size", "2"}), r, 2);
  expect_steps(run, job);
  hosts.cut(1);
  EXPECT_THAT(job.wait(std::chrono::seconds(60)), Each(5)) << job.all_err();
  EXPECT_THAT(job.err(0), HasSubstr("rank 1 (host hostb"));
  EXPECT_THAT(job.err(1), HasSubstr("rank 0 (host hosta"));
}

// Heartbeats pass by way of rank 0 and tell nothing of it.
TEST_F(Hosts, HostsThatLoseEachOtherAndNotRank0EndWithinAMinute) {
  const Network hosts(3);
  if (!hosts.there()) GTEST_SKIP() << "no network namespaces here (needs root and iproute2)";
  const GoldenRun run("save_strategy: \"no\"\n");
  ProcessJob job;
  for (int r = 0; r < 3; ++r)
    hosts.start(job, static_cast<std::size_t>(r), run.train("out", {"--max_steps", "1000000", "--cp_size", "3"}), r, 3);
  expect_steps(run, job);
  ASSERT_TRUE(hosts.pass_on(false));
  EXPECT_THAT(job.wait(std::chrono::seconds(60)), Each(5)) << job.all_err();
  for (std::size_t host = 0; host < 3; ++host) {
    EXPECT_THAT(job.err(host), HasSubstr("rank 1 (host hostb")) << host;
    EXPECT_THAT(job.err(host), HasSubstr("rank 2 (host hostc")) << host;
  }
}

}  // namespace
}  // namespace megatoken::testing
