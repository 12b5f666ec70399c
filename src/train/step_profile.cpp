#include "train/step_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

namespace megatoken {
namespace {

constexpr double kNs = 1e-9;

const char* kind_name(CostKind kind) {
  switch (kind) {
    case CostKind::memory:
      return "memory-bound ops";
    case CostKind::gemm:
      return "products";
    case CostKind::attention_forward:
      return "attention forward";
    case CostKind::attention_backward:
      return "attention backward";
    case CostKind::transfer:
      return "copies";
    case CostKind::exchange:
      return "exchange";
  }
  return "?";
}

struct Sum {
  int64 calls = 0;
  double seconds = 0, flops = 0, bytes = 0;
  void add(const TimelineEntry& entry) {
    ++calls;
    seconds += kNs * (entry.end_ns - entry.begin_ns);
    flops += entry.cost.flops;
    bytes += entry.cost.bytes;
  }
};

bool counts_flops(CostKind kind) {
  return kind == CostKind::gemm || kind == CostKind::attention_forward || kind == CostKind::attention_backward;
}

std::string rate(const Sum& sum, CostKind kind) {
  if (sum.seconds <= 0) return "";
  const double flops = sum.flops / sum.seconds;
  if (counts_flops(kind))
    return flops < 1e12 ? fmt::format("{:.1f} GFLOP/s", 1e-9 * flops) : fmt::format("{:.1f} TFLOP/s", 1e-12 * flops);
  return fmt::format("{:.1f} GB/s", 1e-9 * sum.bytes / sum.seconds);
}

template <typename Key>
std::vector<std::pair<Key, Sum>> longest_first(const std::map<Key, Sum>& sums) {
  std::vector<std::pair<Key, Sum>> sorted(sums.begin(), sums.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  return sorted;
}

}  // namespace

std::string profile_table(const Timeline& timeline, double seconds) {
  constexpr std::size_t kShown = 24;
  std::map<CostKind, Sum> kinds;
  std::map<std::pair<std::string, CostKind>, Sum> ops;
  std::array<Sum, kNumStreams> streams;
  Sum waits;
  for (const TimelineEntry& entry : timeline.entries) {
    streams[static_cast<std::size_t>(entry.stream)].add(entry);
    if (entry.waiting) {
      waits.add(entry);
      continue;
    }
    if (entry.stream == StreamId::compute) kinds[entry.cost.kind].add(entry);
    ops[{entry.name, entry.cost.kind}].add(entry);
  }
  std::string table = fmt::format("compute stream, {:.3f} s\n", seconds);
  const auto line = [&](const char* name, const Sum& sum, const std::string& at) {
    table += fmt::format("  {:<44} {:>8} x {:>10.4f} s {:>6.2f} %  {}\n", name, sum.calls, sum.seconds,
                         100 * sum.seconds / seconds, at);
  };
  for (const auto& [kind, sum] : longest_first(kinds)) line(kind_name(kind), sum, rate(sum, kind));
  line("waiting for other streams", waits, "");
  Sum idle;
  idle.seconds = seconds - streams[0].seconds;
  line("idle", idle, "");
  for (const StreamId stream : {StreamId::h2d, StreamId::d2h, StreamId::exchange}) {
    const Sum& sum = streams[static_cast<std::size_t>(stream)];
    if (sum.calls > 0) line(std::string(name_of(stream)).c_str(), sum, rate(sum, CostKind::transfer));
  }
  table += "by op\n";
  const auto sorted = longest_first(ops);
  for (std::size_t i = 0; i < std::min(kShown, sorted.size()); ++i)
    line(sorted[i].first.first.c_str(), sorted[i].second, rate(sorted[i].second, sorted[i].first.second));
  if (table.back() == '\n') table.pop_back();
  return table;
}

Trace make_trace(const Timeline& timeline, int64 rank) {
  Trace trace;
  trace.process = fmt::format("rank {}", rank);
  trace.process_id = rank;
  for (int s = 0; s < kNumStreams; ++s) trace.tracks.emplace_back(name_of(static_cast<StreamId>(s)));
  for (const TimelineEntry& entry : timeline.entries) {
    TraceSlice slice;
    slice.track = static_cast<std::size_t>(entry.stream);
    slice.name = entry.name;
    slice.category = entry.waiting ? "wait" : kind_name(entry.cost.kind);
    slice.begin_us = entry.begin_ns / 1e3;
    slice.end_us = entry.end_ns / 1e3;
    const double ns = entry.end_ns - entry.begin_ns;
    if (!entry.waiting && ns > 0) {
      if (entry.cost.flops > 0) slice.arguments.emplace_back("TFLOP/s", entry.cost.flops / ns / 1e3);
      if (entry.cost.bytes > 0) slice.arguments.emplace_back("GB/s", entry.cost.bytes / ns);
    }
    trace.slices.push_back(std::move(slice));
  }
  for (const TimelineBuffer& buffer : timeline.buffers)
    trace.lifetimes.push_back({buffer.place == Place::device ? "device memory" : "host memory", buffer.name,
                               buffer.begin_ns / 1e3, buffer.end_ns / 1e3, buffer.bytes, buffer.offset});
  return trace;
}

}  // namespace megatoken
