#include "spec/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace megatoken {
namespace {

using Variables = std::map<std::string, std::string>;
using testing::ElementsAre;
using testing::HasSubstr;

Launch find(const Variables& variables, const ParallelOptions& parallel = {}) {
  return find_launch(parallel, [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end() || found->second.empty()) return std::nullopt;
    return found->second;
  });
}

std::string refusal(const Variables& variables, const ParallelOptions& parallel = {}) {
  try {
    find(variables, parallel);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

ParallelOptions keys(std::optional<int64> num_processes, int64 num_machines = 1) {
  ParallelOptions parallel;
  parallel.num_processes = num_processes;
  parallel.num_machines = num_machines;
  return parallel;
}

TEST(Launch, WithoutALauncherAllRanksAreThreads) {
  EXPECT_TRUE(find({}).alone());
  EXPECT_EQ(find({}).size, 1);
  const Launch launch = find({}, keys(4));
  EXPECT_EQ(launch.ranks_here, 4);
  EXPECT_TRUE(launch.alone());
}

TEST(Launch, RankAndWorldSize) {
  const Variables four = {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}};
  const Launch launch = find(four, keys(4));
  EXPECT_EQ(launch.first_rank, 3);
  EXPECT_EQ(launch.size, 4);
  EXPECT_EQ(launch.ranks_here, 1);
  EXPECT_EQ(launch.master, "a");
  EXPECT_THAT(launch.ports, ElementsAre(29500));
  EXPECT_FALSE(launch.one_host);
  EXPECT_TRUE(find({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).alone());

  Variables local = four;
  local["LOCAL_WORLD_SIZE"] = "4";
  local["LOCAL_RANK"] = "3";
  EXPECT_TRUE(find(local).one_host);
}

// The agent of torchrun and accelerate launch listens at MASTER_PORT itself.
TEST(Launch, PortsBesideTheAgentOfTorchrun) {
  Variables variables = {{"RANK", "0"},
                         {"WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "a"},
                         {"MASTER_PORT", "29500"},
                         {"TORCHELASTIC_RUN_ID", "x"},
                         {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  EXPECT_EQ(find(variables).ports.front(), 29501);
  EXPECT_EQ(find(variables).ports.size(), 8u);
  EXPECT_EQ(find(variables).job, "x");
  variables["MASTER_PORT"] = "65535";
  for (const int64 port : find(variables).ports) EXPECT_TRUE(port >= 1024 && port <= 65535) << port;
}

TEST(Launch, MissingAndContradictoryVariablesAreNamed) {
  const Variables whole = {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}};
  for (const auto& [name, value] : whole) {
    Variables variables = whole;
    variables.erase(name);
    EXPECT_THAT(refusal(variables), HasSubstr(name + " is not set"));
  }
  const auto with = [&](const std::string& name, const std::string& value) {
    Variables variables = whole;
    variables[name] = value;
    return refusal(variables);
  };
  EXPECT_THAT(with("RANK", "2"), HasSubstr("RANK 2 is no rank of WORLD_SIZE 2"));
  EXPECT_THAT(with("RANK", "-1"), HasSubstr("RANK"));
  EXPECT_THAT(with("WORLD_SIZE", "two"), HasSubstr("WORLD_SIZE: \"two\""));
  EXPECT_THAT(with("WORLD_SIZE", "0"), HasSubstr("WORLD_SIZE"));
  EXPECT_THAT(with("WORLD_SIZE", "99999999999999999999"), HasSubstr("WORLD_SIZE"));
  EXPECT_THAT(with("MASTER_PORT", "70000"), HasSubstr("MASTER_PORT"));
  EXPECT_THAT(with("MASTER_PORT", "80x"), HasSubstr("MASTER_PORT"));
  EXPECT_THAT(with("LOCAL_WORLD_SIZE", "3"), HasSubstr("LOCAL_WORLD_SIZE 3 contradicts WORLD_SIZE 2"));
  Variables local = whole;
  local["LOCAL_WORLD_SIZE"] = "1";
  local["LOCAL_RANK"] = "1";
  EXPECT_THAT(refusal(local), HasSubstr("LOCAL_RANK 1 is no rank of LOCAL_WORLD_SIZE 1"));
  EXPECT_THAT(refusal(whole, keys(4)), HasSubstr("num_processes 4 contradicts WORLD_SIZE 2"));
  EXPECT_THAT(refusal({{"MEGATOKEN_JOIN_SECONDS", "soon"}}), HasSubstr("MEGATOKEN_JOIN_SECONDS"));
  EXPECT_THAT(refusal({{"PMIX_RANK", "0"}}), HasSubstr("PMIX_RANK"));
}

TEST(Launch, OpenMpi) {
  Variables variables = {{"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"PMIX_NAMESPACE", "123"},           {"PMIX_RANK", "1"}};
  const Launch launch = find(variables);
  EXPECT_EQ(launch.first_rank, 1);
  EXPECT_EQ(launch.master, "127.0.0.1");
  EXPECT_EQ(launch.ports.size(), 8u);
  EXPECT_EQ(launch.ports, find(variables).ports);
  EXPECT_EQ(launch.job, "123");
  // Over several hosts the master must be told.
  variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  variables["OMPI_COMM_WORLD_LOCAL_RANK"] = "0";
  EXPECT_THAT(refusal(variables), HasSubstr("MASTER_ADDR is not set"));
  ParallelOptions parallel;
  parallel.main_process_ip = "10.0.0.1";
  parallel.main_process_port = 29500;
  EXPECT_EQ(find(variables, parallel).master, "10.0.0.1");
  EXPECT_THAT(find(variables, parallel).ports, ElementsAre(29500));
}

TEST(Launch, Slurm) {
  Variables step = {{"SLURM_PROCID", "5"},        {"SLURM_STEP_NUM_TASKS", "8"},
                    {"SLURM_LOCALID", "1"},       {"SLURM_STEP_ID", "0"},
                    {"SLURM_JOB_ID", "77"},       {"SLURM_STEP_NODELIST", "gpu[003-004]"},
                    {"SLURM_STEP_NUM_NODES", "2"}};
  const Launch launch = find(step);
  EXPECT_EQ(launch.size, 8);
  EXPECT_EQ(launch.first_rank, 5);
  EXPECT_EQ(launch.master, "gpu003");
  EXPECT_EQ(launch.job, "77/0");
  step["MASTER_ADDR"] = "head";
  EXPECT_EQ(find(step).master, "head");
  // The batch script's own shell is no step.
  step.erase("SLURM_STEP_ID");
  EXPECT_TRUE(find(step, keys(4)).alone());
}

TEST(Launch, OneProcessAMachine) {
  const Variables step = {{"SLURM_PROCID", "1"},
                          {"SLURM_STEP_NUM_TASKS", "2"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_JOB_ID", "77"},
                          {"SLURM_STEP_NODELIST", "a1,b2"}};
  const Launch launch = find(step, keys(16, 2));
  EXPECT_EQ(launch.size, 16);
  EXPECT_EQ(launch.first_rank, 8);
  EXPECT_EQ(launch.ranks_here, 8);
  EXPECT_THAT(refusal(step, keys(16)), HasSubstr("num_processes 16 contradicts SLURM_STEP_NUM_TASKS 2"));
}

TEST(Launch, Mpich) {
  const Launch launch = find({{"PMI_RANK", "1"},
                              {"PMI_SIZE", "3"},
                              {"MPI_LOCALNRANKS", "3"},
                              {"MPI_LOCALRANKID", "1"},
                              {"PMI_PORT", "head:41000"}});
  EXPECT_EQ(launch.size, 3);
  EXPECT_EQ(launch.master, "127.0.0.1");
  EXPECT_TRUE(launch.one_host);
}

TEST(Launch, OfOneTaskIsNone) {
  EXPECT_TRUE(find({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}, keys(4)).alone());
  EXPECT_EQ(find({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}, keys(4)).ranks_here, 4);
}

TEST(Launch, Machines) {
  ParallelOptions parallel = keys(6, 3);
  EXPECT_THAT(refusal({}, parallel), HasSubstr("machine_rank: not given"));
  parallel.machine_rank = 2;
  EXPECT_THAT(refusal({}, parallel), HasSubstr("main_process_ip: not given"));
  parallel.main_process_ip = "10.0.0.1";
  EXPECT_THAT(refusal({}, parallel), HasSubstr("main_process_port: not given"));
  parallel.main_process_port = 29500;
  const Launch launch = find({}, parallel);
  EXPECT_EQ(launch.first_rank, 4);
  EXPECT_EQ(launch.ranks_here, 2);
  EXPECT_FALSE(launch.alone());
  parallel.machine_rank = 3;
  EXPECT_THAT(refusal({}, parallel), HasSubstr("machine_rank 3 is none of num_machines 3"));
  parallel.num_processes = 7;
  EXPECT_THAT(refusal({}, parallel), HasSubstr("num_processes 7 can't be shared out"));
  parallel.num_processes.reset();
  EXPECT_THAT(refusal({}, parallel), HasSubstr("num_processes: not given"));
}

TEST(Launch, FirstHostOfANodeList) {
  EXPECT_EQ(first_host("a"), "a");
  EXPECT_EQ(first_host("a,b"), "a");
  EXPECT_EQ(first_host("gpu[003-007,9],login1"), "gpu003");
  EXPECT_EQ(first_host("gpu[9,12]"), "gpu9");
  EXPECT_EQ(first_host("r1-n[01-02]-ib,x"), "r1-n01-ib");
  EXPECT_EQ(first_host("gpu[1"), "");
  EXPECT_EQ(first_host(""), "");
}

}  // namespace
}  // namespace megatoken
