// What every implementation of comm/group.h must do. An implementation's test instantiates the suite with a way to run
// a function as every rank. Ranks may be processes: bodies share nothing and check for themselves.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "comm/group_implementation.h"

namespace megatoken {

TEST_P(GroupConformance, RanksAndSize) {
  run([&](Group& group, Stream&) {
    EXPECT_EQ(group.size(), size());
    const auto ranks = group.all_gather_host(std::to_string(group.rank()));
    for (int64 r = 0; r < size(); ++r) EXPECT_EQ(ranks[static_cast<std::size_t>(r)], std::to_string(r));
  });
}

TEST_P(GroupConformance, AllGather) {
  for (const int64 count : {0, 1, 1000}) {
    run([&](Group& group, Stream& stream) {
      const std::vector<float> mine = test_values(group.rank(), count);
      std::vector<float> all(static_cast<std::size_t>(count * size()), -1);
      group.all_gather(stream, mine.data(), all.data(), count * 4);
      for (int64 r = 0; r < size(); ++r)
        for (int64 i = 0; i < count; ++i) ASSERT_EQ(all[static_cast<std::size_t>(r * count + i)], test_value(r, i));
      EXPECT_EQ(group.bytes_sent(), count * 4 * (size() - 1));
    });
  }
}

TEST_P(GroupConformance, AllGatherInPlace) {
  constexpr int64 kCount = 37;
  run([&](Group& group, Stream& stream) {
    std::vector<float> all(static_cast<std::size_t>(kCount * size()), -1);
    float* own = all.data() + group.rank() * kCount;
    for (int64 i = 0; i < kCount; ++i) own[i] = test_value(group.rank(), i);
    group.all_gather(stream, own, all.data(), kCount * 4);
    for (int64 r = 0; r < size(); ++r)
      for (int64 i = 0; i < kCount; ++i) ASSERT_EQ(all[static_cast<std::size_t>(r * kCount + i)], test_value(r, i));
  });
}

TEST_P(GroupConformance, ReduceScatter) {
  for (const int64 count : {0, 1, 5000}) {
    for (const bool in_place : {false, true}) {
      run([&](Group& group, Stream& stream) {
        std::vector<float> values = test_values(group.rank(), count * size());
        std::vector<float> out(static_cast<std::size_t>(count), -1);
        float* to = in_place ? values.data() + group.rank() * count : out.data();
        group.reduce_scatter(stream, values.data(), to, count);
        for (int64 i = 0; i < count; ++i) ASSERT_TRUE(is_sum(to[i], test_sum(size(), group.rank() * count + i)));
        EXPECT_EQ(group.bytes_sent(), count * 4 * (size() - 1));
      });
    }
  }
}

TEST_P(GroupConformance, AllReduceIsTheSameBitsEverywhere) {
  for (const int64 count : {0, 1, 3, 10007}) {
    run([&](Group& group, Stream& stream) {
      std::vector<float> values = test_values(group.rank(), count);
      group.all_reduce(stream, values.data(), count);
      for (int64 i = 0; i < count; ++i) ASSERT_TRUE(is_sum(values[static_cast<std::size_t>(i)], test_sum(size(), i)));
      const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
      for (const std::string& other : group.all_gather_host(bytes)) ASSERT_EQ(other, bytes);
    });
  }
}

// More than any implementation moves in one piece, in sizes that nothing divides.
TEST_P(GroupConformance, LargeSumsAreTheSameBitsEverywhere) {
  constexpr int64 kCount = 1'500'007;
  run([&](Group& group, Stream& stream) {
    std::vector<float> values = test_values(group.rank(), kCount);
    group.all_reduce(stream, values.data(), kCount);
    for (int64 i = 0; i < kCount; ++i) ASSERT_TRUE(is_sum(values[static_cast<std::size_t>(i)], test_sum(size(), i)));
    const int64 part = kCount / size();
    values = test_values(group.rank(), part * size());
    float* const own = values.data() + group.rank() * part;
    group.reduce_scatter(stream, values.data(), own, part);
    for (int64 i = 0; i < part; ++i) ASSERT_TRUE(is_sum(own[i], test_sum(size(), group.rank() * part + i)));
  });
}

TEST_P(GroupConformance, BytesOfAnAllReduce) {
  run([&](Group& group, Stream& stream) {
    std::vector<float> values(1001);
    group.all_reduce(stream, values.data(), 1001);
    std::vector<double> sent = {static_cast<double>(group.bytes_sent())};
    group.all_reduce_host(sent, Reduce::sum);
    EXPECT_EQ(sent[0], static_cast<double>(2 * (size() - 1) * 1001 * 4));
  });
}

TEST_P(GroupConformance, Broadcast) {
  for (int64 root = 0; root < size(); ++root) {
    run([&](Group& group, Stream& stream) {
      std::vector<float> values = test_values(group.rank(), 100);
      group.broadcast(stream, values.data(), 400, root);
      EXPECT_EQ(values, test_values(root, 100));
      EXPECT_EQ(group.bytes_sent(), group.rank() == root ? 400 * (size() - 1) : 0);
    });
  }
}

TEST_P(GroupConformance, SendReceiveAroundTheRing) {
  run([&](Group& group, Stream& stream) {
    std::vector<float> held = test_values(group.rank(), 64);
    std::vector<float> next(64);
    for (int64 step = 1; step <= size(); ++step) {
      group.send_receive(stream, held.data(), (group.rank() + 1) % size(), next.data(),
                         (group.rank() + size() - 1) % size(), 256);
      held.swap(next);
      EXPECT_EQ(held, test_values((group.rank() + size() * 2 - step) % size(), 64));
    }
    EXPECT_EQ(group.bytes_sent(), size() == 1 ? 0 : 256 * size());
  });
}

TEST_P(GroupConformance, HostValues) {
  run([&](Group& group, Stream&) {
    const auto rank = static_cast<double>(group.rank());
    const auto n = static_cast<double>(size());
    std::vector<double> sum = {rank, 1, -rank};
    group.all_reduce_host(sum, Reduce::sum);
    EXPECT_EQ(sum, (std::vector<double>{n * (n - 1) / 2, n, -n * (n - 1) / 2}));
    std::vector<double> extreme = {rank};
    group.all_reduce_host(extreme, Reduce::max);
    EXPECT_EQ(extreme[0], n - 1);
    extreme = {rank};
    group.all_reduce_host(extreme, Reduce::min);
    EXPECT_EQ(extreme[0], 0);
    std::vector<double> none;
    group.all_reduce_host(none, Reduce::sum);
  });
}

TEST_P(GroupConformance, NanOfOneRankReachesAll) {
  run([&](Group& group, Stream&) {
    for (const Reduce op : {Reduce::sum, Reduce::max, Reduce::min}) {
      std::vector<double> value = {group.rank() == size() - 1 ? std::numeric_limits<double>::quiet_NaN() : 1.0};
      group.all_reduce_host(value, op);
      EXPECT_TRUE(std::isnan(value[0]));
    }
  });
}

TEST_P(GroupConformance, HostStrings) {
  run([&](Group& group, Stream&) {
    const auto all = group.all_gather_host(std::string(static_cast<std::size_t>(group.rank() * 3), 'x') + '\0');
    ASSERT_EQ(static_cast<int64>(all.size()), size());
    for (int64 r = 0; r < size(); ++r)
      EXPECT_EQ(all[static_cast<std::size_t>(r)], std::string(static_cast<std::size_t>(r * 3), 'x') + '\0');
  });
}

TEST_P(GroupConformance, SplitKeepsOrder) {
  run([&](Group& group, Stream& stream) {
    const auto half = group.split(group.rank() % 2);
    EXPECT_EQ(half->rank(), group.rank() / 2);
    EXPECT_EQ(half->size(), (size() + 1 - group.rank() % 2) / 2);
    std::vector<float> value = {static_cast<float>(group.rank())};
    half->all_reduce(stream, value.data(), 1);
    float expected = 0;
    for (int64 r = group.rank() % 2; r < size(); r += 2) expected += static_cast<float>(r);
    EXPECT_EQ(value[0], expected);
    const auto alone = half->split(half->rank());
    EXPECT_EQ(alone->size(), 1);
    group.barrier();
  });
}

TEST_P(GroupConformance, ManyOperationsInARow) {
  run([&](Group& group, Stream& stream) {
    std::vector<float> value(17);
    for (int64 i = 0; i < 200; ++i) {
      std::fill(value.begin(), value.end(), static_cast<float>(group.rank() + i));
      group.all_reduce(stream, value.data(), 17);
      ASSERT_EQ(value[16], static_cast<float>(size() * i + size() * (size() - 1) / 2));
      if (i % 50 == 0) group.barrier();
    }
  });
}

TEST_P(GroupConformance, AnExceptionWakesEverybodyAndIsTheOneRethrown) {
  const int64 culprit = size() - 1;
  EXPECT_THAT(
      [&] {
        run([&](Group& group, Stream&) {
          group.barrier();
          if (group.rank() == culprit) throw FileError("rank {} has lost its file", culprit);
          group.barrier();
        });
      },
      testing::ThrowsMessage<FileError>(testing::HasSubstr("has lost its file")));
}

TEST_P(GroupConformance, AbortReachesSplitGroupsWithTheFirstReason) {
  if (size() == 1) GTEST_SKIP();
  EXPECT_THROW(run([&](Group& group, Stream& stream) {
                 const auto half = group.split(group.rank() % 2);
                 try {
                   if (group.rank() == 0) {
                     group.abort("disk full");
                     group.abort("something later");
                   }
                   std::vector<float> value(4);
                   for (;;) half->all_reduce(stream, value.data(), 4);
                 } catch (const Error& error) {
                   EXPECT_THAT(error.what(), testing::HasSubstr("disk full"));
                   throw;
                 }
               }),
               TrainError);
}

TEST_P(GroupConformance, BadRootIsRefused) {
  EXPECT_THROW(run([&](Group& group, Stream& stream) {
                 float value = 0;
                 group.broadcast(stream, &value, 4, size());
               }),
               InternalError);
}

}  // namespace megatoken
