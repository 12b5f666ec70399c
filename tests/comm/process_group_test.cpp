// Groups over Gloo: ranks that share nothing, as threads of the test and as processes of their own.
#include "comm/process_group.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "comm/group_implementation.h"
#include "comm/process_ranks.h"
#include "comm/rendezvous_test_support.h"

namespace megatoken {
namespace {

// All ranks in this process, each with connections of its own.
void run_threads(int64 size, const std::function<void(Group&, Stream&)>& body) {
  const std::unique_ptr<Device> device = create_cpu_device(1);
  try {
    ProcessRanks ranks(loopback_job(size), size);
    ranks.run(GroupUse::all, [&](Group& group) {
      const auto stream = device->create_stream(StreamMode::own_thread);
      stream->submit([&](Stream& on) { body(group, on); });
      stream->synchronize();
    });
  } catch (const JobError& error) {  // the culprit was lost or ended itself by abort()
    throw TrainError("{}", error.what());
  }
}

// What a child tells its parent: '0' fine, else its exit status and the reason.
void report(int pipe, int code, const std::string& what) {
  const std::string text = static_cast<char>('0' + code) + what;
  const auto written = write(pipe, text.data(), text.size());
  _exit(written == static_cast<ssize_t>(text.size()) && !testing::Test::HasFailure() ? 0 : 1);
}

void child(const JoinOptions& options, int pipe, const std::function<void(Group&, Stream&)>& body) {
  try {
    const std::unique_ptr<Device> device = create_cpu_device(1);
    ProcessRanks ranks(options, 1);
    ranks.run(GroupUse::all, [&](Group& group) {
      const auto stream = device->create_stream(StreamMode::in_order_inline);
      body(group, *stream);
    });
    report(pipe, 0, "");
  } catch (const JobError&) {
    report(pipe, 1, "");
  } catch (const Error& error) {
    report(pipe, static_cast<int>(error.code()), error.what());
  } catch (...) {
    report(pipe, 1, "");
  }
}

// Every rank a process. The culprit's exception comes back by its exit status and text.
void run_processes(int64 size, const std::function<void(Group&, Stream&)>& body) {
  JoinOptions options = loopback_job(size);
  std::vector<std::pair<pid_t, int>> children;
  for (int64 r = 0; r < size; ++r) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    options.rank = r;
    const pid_t process = fork();
    ASSERT_GE(process, 0);
    if (process == 0) child(options, ends[1], body);
    close(ends[1]);
    children.emplace_back(process, ends[0]);
  }
  std::string culprit;
  bool aborted = false;
  for (const auto& [process, pipe] : children) {
    std::string text;
    char part[4096];
    for (ssize_t n; (n = read(pipe, part, sizeof(part))) > 0;) text.append(part, static_cast<std::size_t>(n));
    close(pipe);
    int status = 0;
    ASSERT_EQ(waitpid(process, &status, 0), process);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank's process: " << text;
    if (text.starts_with("1")) aborted = true;
    if (!text.empty() && text[0] > '1') culprit = text;
  }
  if (culprit.empty() && aborted) throw TrainError("aborted");
  if (culprit.empty()) return;
  const std::string what = culprit.substr(1);
  const std::string internal = "internal error: ";
  if (what.starts_with(internal)) throw InternalError("{}", what.substr(internal.size()));
  switch (static_cast<ExitCode>(culprit[0] - '0')) {
    case ExitCode::file:
      throw FileError("{}", what);
    case ExitCode::config:
      throw ConfigError("{}", what);
    default:
      throw TrainError("{}", what);
  }
}

std::string name(const testing::TestParamInfo<GroupImplementation>& info) {
  return fmt::format("{}{}", info.param.name, info.param.size);
}

std::vector<GroupImplementation> implementations() {
  if (!has_process_groups()) return {};
  return {{"threads", 1, run_threads},
          {"threads", 2, run_threads},
          {"threads", 5, run_threads},
          {"processes", 1, run_processes},
          {"processes", 3, run_processes}};
}
INSTANTIATE_TEST_SUITE_P(Gloo, GroupConformance, testing::ValuesIn(implementations()), name);

class ProcessGroup : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_process_groups()) GTEST_SKIP() << "built without Gloo";
  }
};

TEST_F(ProcessGroup, HostOperationsThatDifferAreNamed) {
  EXPECT_THAT(
      [] {
        run_threads(3, [](Group& group, Stream&) {
          std::vector<double> value = {1};
          if (group.rank() == 2)
            group.barrier();
          else
            group.all_reduce_host(value, Reduce::max);
        });
      },
      testing::ThrowsMessage<InternalError>(
          testing::HasSubstr("rank 0 calls all_reduce_host (argument 1), rank 2 calls barrier (argument 0)")));
}

TEST_F(ProcessGroup, HostAndStreamOperationsAtOnce) {
  run_threads(3, [](Group& group, Stream& stream) {
    std::thread exchange([&] {
      std::vector<float> value(5000, 1);
      for (int i = 0; i < 50; ++i) group.all_reduce(stream, value.data(), 5000);
    });
    std::vector<double> value = {1};
    for (int i = 0; i < 50; ++i) group.all_reduce_host(value, Reduce::max);
    exchange.join();
  });
}

TEST_F(ProcessGroup, GroupsOfManySplitsDoNotMeet) {
  run_threads(4, [](Group& group, Stream& stream) {
    for (int round = 0; round < 5; ++round) {
      const auto pair = group.split(group.rank() / 2);
      const auto other = group.split(group.rank() % 2);
      const auto alone = pair->split(pair->rank());
      std::vector<float> value = {static_cast<float>(group.rank() + round)};
      pair->all_reduce(stream, value.data(), 1);
      other->all_reduce(stream, value.data(), 1);
      alone->all_reduce(stream, value.data(), 1);
      EXPECT_EQ(value[0], static_cast<float>(6 + 4 * round));
    }
  });
}

TEST_F(ProcessGroup, AGroupForTheHostAloneHasNoStreams) {
  const JoinOptions options = loopback_job(2);
  std::vector<std::thread> threads;
  for (int64 r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      JoinOptions own = options;
      own.rank = r;
      const auto rendezvous = Rendezvous::join(own);
      const auto group = create_process_group(rendezvous, GroupUse::host);
      EXPECT_EQ(group->all_gather_host(std::string(r == 0 ? 128 : 0, '\1'))[0], std::string(128, '\1'));
      const auto stream = create_cpu_device(1)->create_stream(StreamMode::in_order_inline);
      float value = 0;
      EXPECT_THROW(group->all_reduce(*stream, &value, 1), InternalError);
      rendezvous->leave();
    });
  for (auto& thread : threads) thread.join();
}

TEST_F(ProcessGroup, ARankThatDoesNotComeIsNotWaitedForever) {
  const JoinOptions options = loopback_job(2);
  std::vector<std::thread> threads;
  std::vector<std::string> reasons(2);
  for (int64 r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      JoinOptions own = options;
      own.rank = r;
      own.beat = std::chrono::milliseconds(100);
      own.limit = std::chrono::milliseconds(2000);
      const auto rendezvous = Rendezvous::join(own);
      const auto group = create_process_group(rendezvous, GroupUse::all, std::chrono::milliseconds(200));
      try {
        if (r == 0) group->barrier();
        rendezvous->leave();
      } catch (const AbortedError& error) {
        reasons[static_cast<std::size_t>(r)] = error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const std::string& reason : reasons) EXPECT_THAT(reason, testing::HasSubstr("barrier with rank 1"));
}

// However long a rank computes: what others want to send it waits with them, and breaks no connection, which a silence of
// limit + 5 s would.
TEST_F(ProcessGroup, ARankThatComputesForLongIsNotTakenForLost) {
  JoinOptions options = loopback_job(2);
  options.beat = std::chrono::milliseconds(50);
  options.limit = std::chrono::milliseconds(1000);
  ProcessRanks ranks(options, 2);
  ranks.run(GroupUse::all, [](Group& group) {
    const auto stream = create_cpu_device(1)->create_stream(StreamMode::in_order_inline);
    std::vector<float> values(std::size_t{1} << 23, 1);  // more than a socket holds
    if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(8));
    group.all_reduce(*stream, values.data(), static_cast<int64>(values.size()));
    EXPECT_EQ(values.front(), 2);
    EXPECT_EQ(values.back(), 2);
  });
}

}  // namespace
}  // namespace megatoken
