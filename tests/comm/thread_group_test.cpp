#include <atomic>
#include <thread>

#include "comm/abort.h"
#include "comm/group_conformance.h"
#include "comm/run_ranks.h"

namespace megatoken {
namespace {

void run_threads(int64 size, const std::function<void(Group&, Stream&)>& body) {
  const std::unique_ptr<Device> device = create_cpu_device(1);
  run_ranks(size, [&](Group& group) {
    const auto stream = device->create_stream(StreamMode::in_order_inline);
    body(group, *stream);
  });
}

// The same, every rank's operations in one task of a stream with a thread of its own, as a step's exchange stream does.
void run_on_workers(int64 size, const std::function<void(Group&, Stream&)>& body) {
  const std::unique_ptr<Device> device = create_cpu_device(1);
  run_ranks(size, [&](Group& group) {
    const auto stream = device->create_stream(StreamMode::own_thread);
    stream->submit([&](Stream& on) { body(group, on); });
    stream->synchronize();
  });
}

std::string name(const testing::TestParamInfo<GroupImplementation>& info) {
  return fmt::format("{}{}", info.param.name, info.param.size);
}

INSTANTIATE_TEST_SUITE_P(Self, GroupConformance, testing::Values(GroupImplementation{"self", 1, run_threads}), name);
INSTANTIATE_TEST_SUITE_P(Threads, GroupConformance,
                         testing::Values(GroupImplementation{"inline", 2, run_threads},
                                         GroupImplementation{"inline", 3, run_threads},
                                         GroupImplementation{"inline", 8, run_threads},
                                         GroupImplementation{"worker", 4, run_on_workers}),
                         name);

TEST(ThreadGroup, OfOneThread) {
  const auto groups = create_thread_groups(1);
  groups[0]->barrier();
  EXPECT_EQ(groups[0]->all_gather_host("x"), std::vector<std::string>{"x"});
  EXPECT_THROW(create_thread_groups(0), InternalError);
}

TEST(ThreadGroup, DifferentOperationsAreNamed) {
  EXPECT_THAT(
      [] {
        run_threads(3, [](Group& group, Stream& stream) {
          std::vector<float> value(8);
          if (group.rank() == 2)
            group.broadcast(stream, value.data(), 32, 0);
          else
            group.all_reduce(stream, value.data(), 8);
        });
      },
      testing::ThrowsMessage<InternalError>(testing::HasSubstr(
          "rank 0 calls all_reduce (size 8, argument 0), rank 2 calls broadcast (size 32, argument 0)")));
  EXPECT_THAT(
      [] {
        run_threads(2, [](Group& group, Stream& stream) {
          std::vector<float> value(8);
          group.all_reduce(stream, value.data(), 8 - group.rank());
        });
      },
      testing::ThrowsMessage<InternalError>(testing::HasSubstr("rank 1 calls all_reduce (size 7")));
  EXPECT_THROW(run_threads(3,
                           [](Group& group, Stream& stream) {
                             float value = 0, other = 0;
                             group.send_receive(stream, &value, (group.rank() + 1) % 3, &other, (group.rank() + 1) % 3,
                                                4);
                           }),
               InternalError);
}

TEST(ThreadGroup, ARankThatEndsIsNotWaitedForever) {
  EXPECT_THAT(
      [] {
        run_threads(3, [](Group& group, Stream&) {
          if (group.rank() != 1) group.barrier();
        });
      },
      testing::ThrowsMessage<TrainError>(testing::HasSubstr("rank 1 has ended while others wait for it in barrier")));
}

TEST(ThreadGroup, ARankThatStallsIsNotWaitedForever) {
  const auto groups = create_thread_groups(3, std::chrono::seconds(1));
  std::array<std::string, 2> reasons;
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      try {
        groups[r]->barrier();
      } catch (const AbortedError& error) {
        reasons[r] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const std::string& reason : reasons) EXPECT_EQ(reason, "rank 2 did not come to barrier within 1 s");
  EXPECT_THROW(groups[2]->barrier(), AbortedError);
}

TEST(ThreadGroup, HostAndStreamOperationsMeetApart) {
  run_threads(4, [](Group& group, Stream& stream) {
    // Half of the ranks are early on the host side, half on the stream side.
    std::thread exchange([&] {
      std::vector<float> value(64, 1);
      for (int i = 0; i < 50; ++i) group.all_reduce(stream, value.data(), 64);
    });
    std::vector<double> value = {1};
    for (int i = 0; i < 50; ++i) group.all_reduce_host(value, Reduce::max);
    exchange.join();
  });
}

TEST(ThreadGroup, AbortWhileOthersReadKeepsMemoryUntilTheyAreDone) {
  // Ranks free their buffers as soon as they are aborted; a sanitizer sees a read after that.
  for (int round = 0; round < 20; ++round) {
    EXPECT_THROW(run_threads(4,
                             [&](Group& group, Stream& stream) {
                               for (int i = 0;; ++i) {
                                 std::vector<float> value(20000, 1);
                                 if (group.rank() == 3 && i == round) throw TrainError("stop");
                                 group.all_reduce(stream, value.data(), 20000);
                               }
                             }),
                 TrainError);
  }
}

TEST(RunRanks, TheCulpritsExceptionOfAnyType) {
  EXPECT_THROW(run_ranks(3,
                         [](Group& group) {
                           if (group.rank() == 1) throw 5;
                           group.barrier();
                         }),
               int);
  EXPECT_THROW(run_ranks(1, [](Group&) { throw FitError("too large"); }), FitError);
}

TEST(RunRanks, AReasonGivenBeforeTheOwnErrorStillYieldsTheOwnError) {
  EXPECT_THAT(
      [] {
        run_ranks(3, [](Group& group) {
          if (group.rank() != 2) group.barrier();
          group.abort("rank 2 stops");
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          throw FileError("the file itself");
        });
      },
      testing::ThrowsMessage<FileError>(testing::HasSubstr("the file itself")));
}

}  // namespace
}  // namespace megatoken
