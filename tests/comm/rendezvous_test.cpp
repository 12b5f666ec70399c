// The rendezvous as its guests see it: right ranks, wrong ones, strangers, and ranks that go.
#include "comm/rendezvous/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "comm/rendezvous_test_support.h"

namespace megatoken {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// Runs `body` as rank 0 .. size-1; returns what each ended with: "" or the error's text with its exit status before it.
std::vector<std::string> run_ranks(std::vector<JoinOptions> options, const std::function<void(Rendezvous&)>& body) {
  std::vector<std::string> ends(options.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < options.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        const auto rendezvous = Rendezvous::join(options[r]);
        body(*rendezvous);
        rendezvous->leave();
      } catch (const Error& error) {
        ends[r] = fmt::format("{} {}", static_cast<int>(error.code()), error.what());
      }
    });
  for (auto& thread : threads) thread.join();
  return ends;
}

std::vector<JoinOptions> job(int64 size) {
  JoinOptions options = loopback_job(size);
  options.join = milliseconds(2000);
  options.beat = milliseconds(100);
  options.limit = milliseconds(1500);
  std::vector<JoinOptions> all(static_cast<std::size_t>(size), options);
  for (int64 r = 0; r < size; ++r) all[static_cast<std::size_t>(r)].rank = r;
  return all;
}

TEST(Rendezvous, PlacesKeysAndValues) {
  const auto ends = run_ranks(job(4), [](Rendezvous& rendezvous) {
    ASSERT_EQ(rendezvous.peers().size(), 4u);
    EXPECT_EQ(rendezvous.local_rank(rendezvous.rank()), rendezvous.rank());
    EXPECT_EQ(rendezvous.local_size(0), 4);
    EXPECT_EQ(rendezvous.process_leaders(), std::vector<int64>{0});
    EXPECT_EQ(rendezvous.peers()[3].address, "127.0.0.1");
    rendezvous.put(fmt::format("key {}", rendezvous.rank()),
                   std::string(100'000, static_cast<char>('a' + rendezvous.rank())));
    EXPECT_EQ(rendezvous.get({"key 2", "key 0"}),
              (std::vector<std::string>{std::string(100'000, 'c'), std::string(100'000, 'a')}));
    EXPECT_TRUE(rendezvous.get({}).empty());
  });
  EXPECT_THAT(ends, testing::Each(""));
}

TEST(Rendezvous, OneRank) {
  EXPECT_THAT(run_ranks(job(1), [](Rendezvous&) {}), testing::Each(""));
}

TEST(Rendezvous, SettingsThatDifferAreNamedOnEveryRank) {
  auto options = job(3);
  for (auto& o : options) o.settings = {{"seed", "1"}, {"bf16", "true"}};
  options[2].settings = {{"seed", "2"}, {"bf16", "true"}, {"max_steps", "5"}};
  for (const std::string& end : run_ranks(options, [](Rendezvous&) {})) {
    EXPECT_THAT(end, testing::StartsWith("2 "));
    EXPECT_THAT(end, HasSubstr("max_steps: not given on rank"));
    EXPECT_THAT(end, HasSubstr("seed: "));
    EXPECT_THAT(end, testing::Not(HasSubstr("bf16")));
  }
}

TEST(Rendezvous, APortInUseIsNamed) {
  auto options = job(2);
  const auto listener = listen_at("127.0.0.1", options[0].ports[0]);
  ASSERT_TRUE(listener);
  const auto ends = run_ranks(options, [](Rendezvous&) {});
  EXPECT_THAT(ends[0], HasSubstr("2 MASTER_PORT " + std::to_string(options[0].ports[0]) + ": in use"));
  EXPECT_THAT(ends[1], HasSubstr("2 MASTER_ADDR 127.0.0.1, MASTER_PORT"));
  EXPECT_THAT(ends[1], HasSubstr("is no rendezvous"));
}

TEST(Rendezvous, OtherPortsAreTried) {
  auto options = job(3);
  const int64 second = free_port();
  for (auto& o : options) o.ports.push_back(second);
  const auto listener = listen_at("127.0.0.1", options[0].ports[0]);
  for (auto& o : options) o.join = milliseconds(8000);
  EXPECT_THAT(run_ranks(options, [](Rendezvous&) {}), testing::Each(""));
}

TEST(Rendezvous, ARankThatDoesNotComeAndAMasterThatIsNotThere) {
  auto options = job(3);
  const std::vector<JoinOptions> two = {options[0], options[2]};
  for (const std::string& end : run_ranks(two, [](Rendezvous&) {}))
    EXPECT_THAT(end, HasSubstr("2 WORLD_SIZE 3: rank 1 did not come"));
  EXPECT_THAT(run_ranks({job(2)[1]}, [](Rendezvous&) {})[0], HasSubstr("found no rendezvous of this job within 2 s"));
}

TEST(Rendezvous, RanksOfAnotherKindAreTurnedAway) {
  auto options = job(2);
  options[1].size = 3;
  auto ends = run_ranks(options, [](Rendezvous&) {});
  EXPECT_THAT(ends[1], HasSubstr("2 turned away by rank 0: WORLD_SIZE: rank 1"));
  EXPECT_THAT(ends[0], HasSubstr("WORLD_SIZE: rank 1"));  // why it did not come

  options = job(2);
  options[1].job = "another";
  ends = run_ranks(options, [](Rendezvous&) {});
  EXPECT_THAT(ends[1], HasSubstr("belongs to job \"another\", the job here is \"test\""));

  options = job(3);
  options[1].rank = 2;
  ends = run_ranks(options, [](Rendezvous&) {});
  EXPECT_THAT(ends[0], HasSubstr("rank 1 did not come"));
  EXPECT_THAT(ends[1] + ends[2], HasSubstr("RANK: rank 2"));
}

TEST(Rendezvous, TheFirstFailureReachesAllWithItsStatus) {
  const auto ends = run_ranks(job(4), [](Rendezvous& rendezvous) {
    if (rendezvous.rank() == 2) {
      rendezvous.abort(ExitCode::file, "no such file");
      rendezvous.abort(ExitCode::failed, "something later");
    }
    rendezvous.get({"never"});
  });
  for (const std::string& end : ends) EXPECT_THAT(end, HasSubstr(": no such file"));
}

TEST(Rendezvous, ARankThatGoesWithoutAWordIsLost) {
  auto options = job(3);
  const auto ends = run_ranks(options, [](Rendezvous& rendezvous) {
    if (rendezvous.rank() == 1) throw FileError("gone");  // destroyed without leave()
    rendezvous.get({"never"});
  });
  EXPECT_THAT(ends[0], HasSubstr("rank 1 (host"));
  EXPECT_THAT(ends[2], HasSubstr("lost: it ended without a word"));
}

// A rank as a process, so that it can be stopped and killed.
pid_t start_rank(const JoinOptions& options, int ready) {
  const pid_t process = fork();
  if (process != 0) return process;
  try {
    const auto rendezvous = Rendezvous::join(options);
    if (write(ready, "x", 1) != 1) _exit(9);
    rendezvous->get({"never"});
  } catch (const Error& error) {
    _exit(static_cast<int>(error.code()));
  }
  _exit(0);
}

class LostProcess : public testing::TestWithParam<std::pair<int64, int>> {};

TEST_P(LostProcess, EndsTheOthersInTime) {
  const auto [victim, signal] = GetParam();
  auto options = job(3);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  std::vector<pid_t> processes;
  for (const JoinOptions& o : options) processes.push_back(start_rank(o, ready[1]));
  char byte;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const pid_t victim_process = processes[static_cast<std::size_t>(victim)];
  kill(victim_process, signal);
  const auto begin = std::chrono::steady_clock::now();
  for (const pid_t process : processes) {
    if (process == victim_process) continue;
    int status = 0;
    waitpid(process, &status, 0);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 5);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  if (signal == SIGSTOP) kill(victim_process, SIGCONT);  // it finds out, and ends as the others
  int status = 0;
  waitpid(victim_process, &status, 0);
  EXPECT_EQ(signal == SIGSTOP ? WIFEXITED(status) && WEXITSTATUS(status) == 5 : WIFSIGNALED(status), true);
  close(ready[0]);
  close(ready[1]);
}

INSTANTIATE_TEST_SUITE_P(Rendezvous, LostProcess,
                         testing::Values(std::pair(0, SIGKILL), std::pair(2, SIGKILL), std::pair(0, SIGSTOP),
                                         std::pair(1, SIGSTOP)));

TEST(Rendezvous, AStuckRankIsToldToEnd) {
  auto options = job(2);
  std::atomic<int> overdue = 0;
  options[1].grace = milliseconds(100);
  options[1].overdue = [&](const Abort& failure) {
    EXPECT_THAT(failure.reason, HasSubstr("stop"));
    ++overdue;
  };
  run_ranks(options, [&](Rendezvous& rendezvous) {
    if (rendezvous.rank() == 0) rendezvous.abort(ExitCode::failed, "stop");
    if (rendezvous.rank() == 1)
      while (overdue == 0) std::this_thread::sleep_for(milliseconds(10));
  });
  EXPECT_EQ(overdue, 1);
}

void send_bytes(const Socket& socket, const std::string& bytes) {
  EXPECT_EQ(::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

// While ranks come and work: other programs, half an hello, silence, and many of them.
TEST(Rendezvous, StrangersDoNotDisturb) {
  auto options = job(3);
  for (auto& o : options) o.join = milliseconds(8000);
  std::atomic<bool> done = false;
  std::thread strangers([&] {
    std::vector<Socket> silent;
    int64 round = 0;
    while (!done) {
      std::string why;
      auto socket = connect_to("127.0.0.1", options[0].ports[0], milliseconds(100), why);
      if (!socket) continue;
      Hello hello;
      hello.job = "test";
      hello.rank = 1;
      hello.size = 3;
      const std::string whole = encode(hello);
      switch (++round % 5) {
        case 0:
          send_bytes(*socket, "GET / HTTP/1.1\r\n\r\n");
          break;
        case 1:
          send_bytes(*socket, whole.substr(0, whole.size() / 2));
          silent.push_back(std::move(*socket));
          break;
        case 2:
          silent.push_back(std::move(*socket));
          break;
        case 3:
          send_bytes(*socket, encode(Put{"key", "wrong"}));
          break;
        case 4:
          hello.job = "another";
          send_bytes(*socket, encode(hello));
          break;
      }
      if (silent.size() > 300) silent.clear();
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  const auto ends = run_ranks(options, [](Rendezvous& rendezvous) {
    for (int i = 0; i < 200; ++i) {
      rendezvous.put(fmt::format("{} {}", i, rendezvous.rank()), "right");
      EXPECT_EQ(rendezvous.get({fmt::format("{} 0", i), fmt::format("{} 1", i), fmt::format("{} 2", i)}),
                (std::vector<std::string>(3, "right")));
    }
  });
  done = true;
  strangers.join();
  EXPECT_THAT(ends, testing::Each(""));
}

// A rank whose connection turns to garbage is lost, and the others know.
TEST(Rendezvous, ARankThatSendsGarbageEndsTheJob) {
  auto options = job(2);
  std::thread garbage([&] {
    std::string why;
    std::optional<Socket> socket;
    while (!socket) socket = connect_to("127.0.0.1", options[0].ports[0], milliseconds(100), why);
    Hello hello;
    hello.job = "test";
    hello.rank = 1;
    hello.size = 2;
    send_bytes(*socket, encode(hello) + "\xff\xff\xff\xff garbage");
    std::this_thread::sleep_for(milliseconds(300));
  });
  const auto ends = run_ranks({options[0]}, [](Rendezvous& rendezvous) { rendezvous.get({"never"}); });
  garbage.join();
  EXPECT_THAT(ends[0], HasSubstr("its connection is broken"));
}

}  // namespace
}  // namespace megatoken
