#include "plan/counted_step.h"

#include <algorithm>

namespace megatoken {
namespace {

struct Peak {
  int64 bytes = 0;
  int64 time = 0;
};

template <typename Counts>
Peak peak_of(const CountedStep& step, Place place, bool uses, const Counts& counts) {
  std::vector<int64> change(static_cast<std::size_t>(step.end_time + 2), 0);
  for (const SiteLifetimes& site : step.sites) {
    if (site.place != place || !counts(site)) continue;
    for (const Interval& interval : uses ? site.uses : site.lifetimes) {
      if (interval.end <= interval.begin) continue;
      change[static_cast<std::size_t>(interval.begin)] += align_up(site.bytes);
      change[static_cast<std::size_t>(interval.end)] -= align_up(site.bytes);
    }
  }
  Peak peak;
  int64 live = 0;
  for (std::size_t t = 0; t < change.size(); ++t) {
    live += change[t];
    if (live > peak.bytes) peak = {live, static_cast<int64>(t)};
  }
  return peak;
}

Peak peak_of(const CountedStep& step, Place place, bool uses) {
  return peak_of(step, place, uses, [](const SiteLifetimes&) { return true; });
}

// Sums in extended precision: integers stay exact up to 2^64, so collapsed and flat counts agree to the last bit.
struct Sum {
  int64 ops = 0;
  long double flops = 0;
  long double bytes = 0;

  void add(const StepEvent& event) {
    ops += event.multiplicity;
    flops += static_cast<long double>(event.flops) * static_cast<long double>(event.multiplicity);
    bytes += static_cast<long double>(event.bytes) * static_cast<long double>(event.multiplicity);
  }
  WorkTotal total() const { return {ops, static_cast<double>(flops), static_cast<double>(bytes)}; }
};

bool covers(const std::vector<Interval>& intervals, int64 time) {
  return std::any_of(intervals.begin(), intervals.end(),
                     [&](const Interval& i) { return i.begin <= time && time < i.end; });
}

}  // namespace

std::string_view name_of(WorkKind kind) {
  switch (kind) {
    case WorkKind::memory:
      return "memory";
    case WorkKind::gemm:
      return "gemm";
    case WorkKind::attention_forward:
      return "attention forward";
    case WorkKind::attention_backward:
      return "attention backward";
    case WorkKind::transfer:
      return "transfer";
    case WorkKind::exchange:
      return "exchange";
  }
  return "?";
}

void compute_peaks(CountedStep& step) {
  for (const Place place : {Place::device, Place::host}) {
    const auto p = static_cast<std::size_t>(place);
    step.peak_live_bytes[p] = peak_of(step, place, false).bytes;
  }
}

int64 peak_live_bytes(const CountedStep& step, Place place, const std::function<bool(const SiteLifetimes&)>& counts) {
  return peak_of(step, place, false, counts).bytes;
}

int64 slack_bytes(const CountedStep& step, Place place) {
  return peak_of(step, place, false).bytes - peak_of(step, place, true).bytes;
}

WorkTotals total_work(const CountedStep& step) {
  std::vector<Sum> names(step.names.size());
  std::array<Sum, kNumWorkKinds> kinds;
  std::array<Sum, kNumStreams> streams;
  for (const StepEvent& event : step.events) {
    if (event.type != StepEvent::Type::work) continue;
    names[static_cast<std::size_t>(event.name)].add(event);
    kinds[static_cast<std::size_t>(event.kind)].add(event);
    streams[static_cast<std::size_t>(event.stream)].add(event);
  }
  WorkTotals totals;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i].ops > 0) totals.by_name[step.names[i]] = names[i].total();
  for (std::size_t i = 0; i < kinds.size(); ++i) totals.by_kind[i] = kinds[i].total();
  for (std::size_t i = 0; i < streams.size(); ++i) totals.by_stream[i] = streams[i].total();
  return totals;
}

std::vector<PeakSite> sites_at_peak(const CountedStep& step, Place place) {
  const Peak peak = peak_of(step, place, false);
  std::vector<PeakSite> sites;
  for (const SiteLifetimes& site : step.sites)
    if (site.place == place && site.bytes > 0 && covers(site.lifetimes, peak.time))
      sites.push_back({site.name, site.bytes, !covers(site.uses, peak.time)});
  std::stable_sort(sites.begin(), sites.end(), [](const PeakSite& a, const PeakSite& b) { return a.bytes > b.bytes; });
  return sites;
}

}  // namespace megatoken
