// Runs the built program as the ranks of a job, each a process with an environment of its own, as launchers do.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <thread>
#include <vector>

#include "cli/cli_test_support.h"
#include "comm/process_group.h"

namespace megatoken::testing {

using Variables = std::map<std::string, std::string>;

// Jobs of several processes need Gloo.
class ProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_process_groups()) GTEST_SKIP() << "this program was built without Gloo";
  }
};

// A port that nobody listens at just now.
inline int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw std::runtime_error("no free port");
  close(fd);
  return ntohs(address.sin_port);
}

class ProcessJob {
 public:
  ~ProcessJob() {
    for (Rank& rank : ranks_)
      if (!rank.ended) {
        kill(rank.process, SIGKILL);
        waitpid(rank.process, nullptr, 0);
      }
  }

  // Starts the program (or `command`, found in PATH) with these arguments and variables; empty: unset. In `directory`.
  void start(const std::vector<std::string>& arguments, const Variables& variables, const std::string& directory = ".",
             const std::string& command = MEGATOKEN_PROGRAM) {
    Rank rank;
    const std::string name = std::to_string(ranks_.size());
    rank.out = files_ / (name + ".out");
    rank.err = files_ / (name + ".err");
    rank.process = fork();
    if (rank.process == 0) {
      for (const char* launcher : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                                   "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_ID", "PMI_SIZE", "PMIX_RANK"})
        unsetenv(launcher);
      for (const auto& [key, value] : variables)
        value.empty() ? unsetenv(key.c_str()) : setenv(key.c_str(), value.c_str(), 1);
      dup2(open(rank.out.c_str(), O_CREAT | O_WRONLY, 0600), 1);
      dup2(open(rank.err.c_str(), O_CREAT | O_WRONLY, 0600), 2);
      std::vector<char*> argv{const_cast<char*>(command.c_str())};
      for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
      argv.push_back(nullptr);
      if (chdir(directory.c_str()) == 0) execvp(command.c_str(), argv.data());
      _exit(127);
    }
    ranks_.push_back(rank);
  }

  // RANK 0 .. size-1 on this host, as torchrun starts them.
  void start_ranks(int size, const std::vector<std::string>& arguments) {
    const std::string port = std::to_string(free_port());
    for (int r = 0; r < size; ++r) start(arguments, variables_of(r, size, port));
  }
  static Variables variables_of(int rank, int size, const std::string& port) {
    return {{"RANK", std::to_string(rank)},       {"WORLD_SIZE", std::to_string(size)},
            {"LOCAL_RANK", std::to_string(rank)}, {"LOCAL_WORLD_SIZE", std::to_string(size)},
            {"MASTER_ADDR", "127.0.0.1"},         {"MASTER_PORT", port}};
  }

  void signal(std::size_t rank, int number) { kill(ranks_[rank].process, number); }

  // Waits for the end of a rank; its exit status, -1 when a signal ended it or it takes longer than `limit`.
  int wait(std::size_t index, std::chrono::seconds limit) {
    Rank& rank = ranks_[index];
    const auto deadline = std::chrono::steady_clock::now() + limit;
    int status = 0;
    rusage usage{};
    while (!rank.ended) {
      const pid_t ended = wait4(rank.process, &status, WNOHANG, &usage);
      if (ended == rank.process) {
        rank.ended = true;
        rank.peak_bytes = usage.ru_maxrss * 1024;
        rank.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
      } else if (std::chrono::steady_clock::now() > deadline) {
        return -1;
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    }
    return rank.status;
  }
  // Of all ranks, in their order.
  std::vector<int> wait(std::chrono::seconds limit = std::chrono::seconds(60)) {
    std::vector<int> statuses;
    for (std::size_t r = 0; r < ranks_.size(); ++r) statuses.push_back(wait(r, limit));
    return statuses;
  }

  // The largest resident size that an ended rank had.
  long peak_bytes(std::size_t rank) const { return ranks_[rank].peak_bytes; }
  std::string out(std::size_t rank) const { return read_file(ranks_[rank].out); }
  std::string err(std::size_t rank) const { return read_file(ranks_[rank].err); }
  std::string all_err() const {
    std::string text;
    for (std::size_t r = 0; r < ranks_.size(); ++r) text += "rank " + std::to_string(r) + ": " + err(r) + "\n";
    return text;
  }

 private:
  struct Rank {
    pid_t process = -1;
    std::string out, err;
    bool ended = false;
    int status = -1;
    long peak_bytes = 0;
  };
  Directory files_;
  std::vector<Rank> ranks_;
};

}  // namespace megatoken::testing
