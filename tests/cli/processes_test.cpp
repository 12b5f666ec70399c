// Jobs of several processes: the same numbers as threads, refusals on every rank, and ranks that fail.
#include <gmock/gmock.h>

#include "cli/golden_run.h"
#include "cli/process_job.h"

namespace megatoken::testing {
namespace {

class Processes : public ProcessTest {};

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kRefused = 2, kBadFile = 3, kFailed = 5;

void expect_trained(ProcessJob& job) { ASSERT_THAT(job.wait(), Each(0)) << job.all_err(); }

TEST_F(Processes, TrainToTheSameBitsAsThreads) {
  const GoldenRun run;
  struct Mesh {
    int ranks;
    const char *cp, *exchange, *replicas = "1";
  };
  for (const auto& [ranks, cp, exchange, replicas] :
       {Mesh{4, "2", "allgather"}, Mesh{4, "2", "alltoall"}, Mesh{3, "3", "allgather"}, Mesh{8, "8", "alltoall"},
        Mesh{8, "2", "allgather", "2"}}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks, cp " + cp + ", " + exchange);
    const std::vector<std::string> mesh = {"--cp_size",           cp,      "--cp_comm_strategy", exchange,
                                           "--dp_replicate_size", replicas};
    std::vector<std::string> threads = mesh;
    threads.insert(threads.end(), {"--num_processes", std::to_string(ranks)});
    ASSERT_EQ(testing::run(run.command("threads", threads)).status, 0);
    ProcessJob job;
    job.start_ranks(ranks, run.train("processes", mesh));
    expect_trained(job);
    run.expect_same("threads", "processes");
    EXPECT_THAT(job.out(0), HasSubstr("loss"));
    for (std::size_t r = 1; r < static_cast<std::size_t>(ranks); ++r)
      EXPECT_EQ(job.out(r) + job.err(r), "") << "rank " << r;
  }
}

TEST_F(Processes, OfThreadsOnSeveralMachines) {
  const GoldenRun run("num_machines: 2\nnum_processes: 4\nmain_process_ip: 127.0.0.1\ncp_size: 2\n");
  ASSERT_EQ(testing::run(run.command("threads", {"--num_machines", "1"})).status, 0);
  ProcessJob job;
  const std::string port = std::to_string(free_port());
  for (const char* machine : {"0", "1"})
    job.start(run.train("machines", {"--main_process_port", port, "--machine_rank", machine}), {});
  expect_trained(job);
  run.expect_same("threads", "machines");
}

TEST_F(Processes, Evaluate) {
  const GoldenRun run("eval_dataset: " MEGATOKEN_TEST_DATA "/golden/qwen3_tied/train.jsonl\n");
  const Outcome one = testing::run("eval " + run.config() + " --json");
  ASSERT_EQ(one.status, 0) << one.err;
  ProcessJob job;
  job.start_ranks(3, {"eval", run.config(), "--json", "--cp_size", "3"});
  expect_trained(job);
  const auto line = nlohmann::json::parse(job.out(0)), expected = nlohmann::json::parse(one.out);
  EXPECT_NEAR(line["eval_loss"].get<double>(), expected["eval_loss"].get<double>(),
              1e-5 * expected["eval_loss"].get<double>());
  EXPECT_EQ(line["eval_target_tokens"], expected["eval_target_tokens"]);
  EXPECT_EQ(job.out(1) + job.out(2), "");
}

void expect_refused(ProcessJob& job, const std::string& part) {
  EXPECT_THAT(job.wait(seconds(15)), Each(kRefused)) << job.all_err();
  for (const std::size_t rank : {0, 1})
    EXPECT_THAT(job.err(rank), AllOf(::testing::StartsWith("error: "), HasSubstr(part)));
}

TEST_F(Processes, UnequalConfigurationsAreRefusedOnEveryRank) {
  const GoldenRun run;
  ProcessJob job;
  const std::string port = std::to_string(free_port());
  job.start(run.train("out"), ProcessJob::variables_of(0, 2, port));
  job.start(run.train("out", {"--learning_rate", "0.5"}), ProcessJob::variables_of(1, 2, port));
  expect_refused(job, "learning_rate: ");
}

TEST_F(Processes, RanksThatNothingFillsAreRefused) {
  const GoldenRun run;
  expect_error(run.command("out", {"--num_processes", "8", "--cp_size", "8", "--max_length", "7"}), kRefused,
               "cp_size 8: more ranks than the tokens of a row (max_length 7)");
  expect_error(run.command("out", {"--num_processes", "1000"}), kRefused, "dp_shard_size 1000 x cp_size 1: more ranks");
  ProcessJob job;
  job.start_ranks(3, run.train("out", {"--cp_size", "3", "--max_length", "2"}));
  EXPECT_THAT(job.wait(seconds(15)), Each(kRefused)) << job.all_err();
  EXPECT_THAT(job.err(0), HasSubstr("cp_size 3: more ranks"));
}

TEST_F(Processes, WhatIsMissingOrContradictsIsRefusedOnEveryRank) {
  const GoldenRun run;
  {
    ProcessJob job;
    job.start_ranks(2, run.train("out", {"--cp_size", "3"}));
    expect_refused(job, "cp");
  }
  {
    ProcessJob job;
    job.start_ranks(2, run.train("out", {"--num_processes", "4"}));
    expect_refused(job, "num_processes 4 contradicts WORLD_SIZE 2");
  }
  {
    ProcessJob job;
    for (int r = 0; r < 2; ++r) {
      Variables variables = ProcessJob::variables_of(r, 2, "");
      job.start(run.train("out"), variables);
    }
    expect_refused(job, "MASTER_PORT is not set");
  }
  {  // of three ranks, one does not come
    ProcessJob job;
    const std::string port = std::to_string(free_port());
    for (int r = 0; r < 2; ++r) job.start(run.train("out"), ProcessJob::variables_of(r, 3, port));
    expect_refused(job, "rank 2 did not come");
  }
}

TEST_F(Processes, APortInUseAndAMasterThatIsNotThere) {
  const GoldenRun run;
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  ASSERT_EQ(listen(fd, 8), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));
  ProcessJob job;
  for (int r = 0; r < 2; ++r) job.start(run.train("out"), ProcessJob::variables_of(r, 2, port));
  Variables nowhere = ProcessJob::variables_of(1, 2, std::to_string(free_port()));
  job.start(run.train("out"), nowhere);
  expect_refused(job, "MASTER_PORT");
  EXPECT_THAT(job.err(0), HasSubstr("in use"));
  EXPECT_THAT(job.err(2), HasSubstr("found no rendezvous"));
  close(fd);
}

// Equal configurations, but the files of one host are others, or are not there.
TEST_F(Processes, FilesThatDifferBetweenRanks) {
  const GoldenRun run;
  const Directory hosts;
  const std::string rows = read_file(MEGATOKEN_TEST_DATA "/golden/qwen3_tied/train.jsonl");
  hosts.write("a/data.jsonl", rows);
  hosts.write("b/data.jsonl", rows + rows.substr(0, rows.find('\n') + 1));
  hosts.write("c/none", "");
  for (const std::string other : {"b", "c"}) {
    ProcessJob job;
    const std::string port = std::to_string(free_port());
    const auto arguments = run.train("out", {"--dataset_name", "data.jsonl"});
    job.start(arguments, ProcessJob::variables_of(0, 2, port), hosts / "a");
    job.start(arguments, ProcessJob::variables_of(1, 2, port), hosts / other);
    EXPECT_THAT(job.wait(seconds(30)), Each(kBadFile)) << job.all_err();
    EXPECT_THAT(job.err(0), HasSubstr("data.jsonl"));
    EXPECT_THAT(job.err(0), HasSubstr("rank 1"));
  }
}

// A run that would go on for long.
class LongRun {
 public:
  explicit LongRun(int ranks, const std::vector<std::string>& more = {}) : run_("save_strategy: \"no\"\n") {
    std::vector<std::string> arguments = {"--max_steps", "1000000", "--cp_size", std::to_string(ranks)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    job_.start_ranks(ranks, run_.train("out", arguments));
    for (int i = 0; i < 3000 && run_.steps("out").size() < 3; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ProcessJob& job() { return job_; }
  const GoldenRun& run() const { return run_; }

 private:
  GoldenRun run_;
  ProcessJob job_;
};

TEST_F(Processes, AKilledRankEndsTheJobAtOnce) {
  for (const std::size_t victim : {0, 2}) {
    LongRun run(3);
    ASSERT_GE(run.run().steps("out").size(), 3u) << run.job().all_err();
    run.job().signal(victim, SIGKILL);
    for (std::size_t r = 0; r < 3; ++r) {
      if (r == victim) continue;
      EXPECT_EQ(run.job().wait(r, seconds(30)), kFailed) << run.job().all_err();
    }
    // The lowest rank that is left tells, and it alone.
    EXPECT_THAT(run.job().err(victim == 0 ? 1 : 0), HasSubstr(victim == 0 ? "rank 0 (host" : "rank 2 (host"));
    EXPECT_EQ(run.job().err(victim == 0 ? 2 : 1), "");
  }
}

TEST_F(Processes, ASignalToAnyRankStopsAllAfterSaving) {
  for (const auto& [signal, status] : {std::pair(SIGTERM, 143), std::pair(SIGINT, 130)}) {
    LongRun run(2);
    ASSERT_GE(run.run().steps("out").size(), 3u) << run.job().all_err();
    run.job().signal(1, signal);
    EXPECT_THAT(run.job().wait(), Each(status)) << run.job().all_err();
    bool saved = false;
    for (const auto& entry : std::filesystem::directory_iterator(run.run().output("out")))
      saved = saved || entry.path().filename().string().starts_with("checkpoint-");
    EXPECT_TRUE(saved);
  }
}

TEST_F(Processes, WhatIsNotFiniteEndsAllAlike) {
  const GoldenRun run;
  ProcessJob job;
  job.start_ranks(2, run.train("out", {"--learning_rate", "1e6", "--weight_decay", "1", "--lr_scheduler_type",
                                       "constant", "--max_steps", "20", "--cp_size", "2"}));
  EXPECT_THAT(job.wait(), Each(kFailed)) << job.all_err();
  EXPECT_THAT(job.err(0), AllOf(HasSubstr("nothing was saved"), ::testing::StartsWith("error: ")));
  EXPECT_FALSE(std::filesystem::exists(run.output("out") + "/model.safetensors"));
}

}  // namespace
}  // namespace megatoken::testing
