// Operations of a group in a row without the host waiting for any, while a second stream of the rank overwrites their
// operands as soon as its events allow it: as in a step. What another rank reads too late, or too early, comes out
// wrong.
#pragma once

#include <gtest/gtest.h>

#include "comm/group_implementation.h"

namespace megatoken {

// rank_order: sums are those of group_implementation.h in every bit, else near them.
inline void run_traffic(Group& group, Device& device, bool rank_order = true) {
  constexpr int64 kCount = 4096, kRounds = 12, kBytes = kCount * 4;
  const int64 n = group.size(), rank = group.rank();
  const auto compute = device.create_stream(StreamMode::in_order_inline);
  const auto exchange = device.create_stream(StreamMode::own_thread);
  const auto floats = [](const Memory& memory) { return reinterpret_cast<float*>(memory.data()); };

  // Rank r's values of a round, all in place before anything is queued.
  const auto seed = [](int64 r, int64 round) { return r + 11 * round; };
  const Memory input = device.allocate_host(kRounds * n * kBytes, "input");
  const Memory garbage = device.allocate_host(n * kBytes, "garbage");
  for (int64 i = 0; i < n * kCount; ++i) floats(garbage)[i] = -1e30F;
  for (int64 round = 0; round < kRounds; ++round)
    for (int64 i = 0; i < n * kCount; ++i) floats(input)[round * n * kCount + i] = test_value(seed(rank, round), i);
  enum Outcome { gathered, scattered, passed, reduced, broadcasted, kOutcomes };
  const Memory outcome = device.allocate_host(kRounds * kOutcomes * n * kBytes, "outcome");
  const auto outcome_at = [&](int64 round, Outcome which) {
    return floats(outcome) + (round * kOutcomes + which) * n * kCount;
  };
  const Memory own = device.allocate(kBytes, "own"), all = device.allocate(n * kBytes, "all"),
               other = device.allocate(kBytes, "other");

  const auto on_exchange = [&](const std::function<void(Stream&)>& task) {
    exchange->wait(compute->record());
    exchange->submit(task);
  };
  const auto on_compute = [&](const std::function<void(Stream&)>& task) {
    compute->wait(exchange->record());
    compute->submit(task);
  };
  const auto fill = [&](const Memory& to, int64 round) {
    compute->submit([&, round](Stream& s) { s.copy(to.data(), floats(input) + round * n * kCount, to.bytes()); });
  };
  const auto keep = [&](const Memory& from, int64 round, Outcome which) {
    on_compute([&, round, which](Stream& s) { s.copy(outcome_at(round, which), from.data(), from.bytes()); });
  };
  const auto spoil = [&](const Memory& memory) {
    compute->submit([&](Stream& s) { s.copy(memory.data(), garbage.data(), memory.bytes()); });
  };
  for (int64 round = 0; round < kRounds; ++round) {
    fill(own, round);
    on_exchange([&](Stream& s) { group.all_gather(s, own.data(), all.data(), kBytes); });
    keep(all, round, gathered);
    spoil(own);
    fill(all, round);
    on_exchange([&](Stream& s) { group.reduce_scatter(s, floats(all), floats(own), kCount); });
    keep(own, round, scattered);
    spoil(all);
    fill(own, round);
    on_exchange([&](Stream& s) {
      group.send_receive(s, own.data(), (rank + 1) % n, other.data(), (rank + n - 1) % n, kBytes);
    });
    keep(other, round, passed);
    spoil(own);
    spoil(other);
    fill(own, round);
    on_exchange([&](Stream& s) { group.all_reduce(s, floats(own), kCount); });
    keep(own, round, reduced);
    fill(own, round);
    on_exchange([&, round](Stream& s) { group.broadcast(s, own.data(), kBytes, round % n); });
    keep(own, round, broadcasted);
    spoil(own);
  }
  exchange->synchronize();
  compute->synchronize();

  const auto sum = [&](int64 round, int64 i) {
    float total = test_value(seed(0, round), i);
    for (int64 r = 1; r < n; ++r) total += test_value(seed(r, round), i);
    return total;
  };
  for (int64 round = 0; round < kRounds; ++round) {
    const auto expect = [&](const char* what, Outcome which, int64 at, float want, bool exact) {
      const float got = outcome_at(round, which)[at];
      ASSERT_TRUE(got == want || (!exact && std::abs(got - want) <= 1e-4F * static_cast<float>(n)))
          << what << " on rank " << rank << " of " << n << ", round " << round << ", element " << at << ": " << got
          << " instead of " << want;
    };
    for (int64 i = 0; i < kCount; ++i) {
      for (int64 r = 0; r < n; ++r)
        ASSERT_NO_FATAL_FAILURE(expect("all_gather", gathered, r * kCount + i, test_value(seed(r, round), i), true));
      ASSERT_NO_FATAL_FAILURE(expect("reduce_scatter", scattered, i, sum(round, rank * kCount + i), rank_order));
      ASSERT_NO_FATAL_FAILURE(expect("send_receive", passed, i, test_value(seed((rank + n - 1) % n, round), i), true));
      ASSERT_NO_FATAL_FAILURE(expect("all_reduce", reduced, i, sum(round, i), rank_order));
      ASSERT_NO_FATAL_FAILURE(expect("broadcast", broadcasted, i, test_value(seed(round % n, round), i), true));
    }
  }
}

}  // namespace megatoken
