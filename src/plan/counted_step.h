// What counting a step yields: every buffer site with its lifetimes, every op with its cost, every join. Plain data;
// the packer (plan.h) and the cost model (price.h) read it. Time is the index of an event in program order; loops may
// have been collapsed, then an event stands for `multiplicity` equal ones.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "plan/stream_id.h"

namespace megatoken {

// Offsets and sizes in an arena are multiples of this.
inline constexpr int64 kArenaAlignment = 256;
constexpr int64 align_up(int64 bytes) { return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment; }

// Events [begin, end).
struct Interval {
  int64 begin = 0;
  int64 end = 0;
};

// A place of the program where a buffer is made: the names of the enclosing loops and its own, "layer/tile/gate".
// One offset, many lifetimes, never two at once.
struct SiteLifetimes {
  std::string name;
  Place place = Place::device;
  int64 bytes = 0;                  // the largest of its uses
  std::vector<Interval> lifetimes;  // ascending, disjoint: from creation until compute has joined the last access
  std::vector<Interval> uses;       // per lifetime, from the first to the last access; empty when never accessed
};

// As ops/cost.h names them.
enum class WorkKind : std::uint8_t { memory, gemm, attention_forward, attention_backward, transfer, exchange };
inline constexpr int kNumWorkKinds = 6;
std::string_view name_of(WorkKind kind);

struct WorkTotal {
  int64 ops = 0;
  double flops = 0;
  double bytes = 0;
};

// One entry of the program for the cost model.
struct StepEvent {
  enum class Type : std::uint8_t {
    work,          // an op on `stream`, its `seq`-th there
    join,          // compute waits for (stream, seq); name: why
    period_begin,  // the events until the matching period_end stand for `multiplicity` equal periods
    period_end,
  };
  Type type = Type::work;
  StreamId stream = StreamId::compute;
  WorkKind kind = WorkKind::memory;
  std::int32_t name = 0;  // into CountedStep::names
  int64 seq = 0;
  double flops = 0;
  double bytes = 0;
  double units = 0;  // as ops/cost.h
  int64 multiplicity =
      1;  // of this event, all enclosing loops together (period_begin, period_end: of the period alone)
  std::int64_t first_after = 0;  // work: into CountedStep::after
  std::int64_t num_after = 0;
};

struct ExternalState {
  std::string name;
  Place place = Place::device;
  int64 bytes = 0;
};

struct CountedStep {
  std::vector<SiteLifetimes> sites;  // in order of first use
  std::vector<ExternalState> externals;
  std::vector<StepEvent> events;
  std::vector<std::string> names;
  std::vector<Ticket> after;
  int64 end_time = 0;

  // Largest sum of live sites' bytes (each aligned): no packing can be smaller.
  std::array<int64, kNumPlaces> peak_live_bytes{};

  int64 live_bytes(Place place) const { return peak_live_bytes[static_cast<std::size_t>(place)]; }
};

// Fills the peaks from the sites. Called by whoever has filled the sites.
void compute_peaks(CountedStep& step);

// The live peak of those sites that count.
int64 peak_live_bytes(const CountedStep& step, Place place, const std::function<bool(const SiteLifetimes&)>& counts);

// How much the live peak would be smaller if every lifetime began at its first and ended at its last access: what
// shorter scopes and earlier joins could win at most.
int64 slack_bytes(const CountedStep& step, Place place);

// Loops multiplied out: equal whether collapsed or not.
struct WorkTotals {
  std::array<WorkTotal, kNumWorkKinds> by_kind{};
  std::map<std::string, WorkTotal> by_name;
  std::array<WorkTotal, kNumStreams> by_stream{};
};
WorkTotals total_work(const CountedStep& step);

// The sites alive at the event of the live peak, largest first; `idle` when not between its first and last access
// there.
struct PeakSite {
  std::string name;
  int64 bytes = 0;
  bool idle = false;
};
std::vector<PeakSite> sites_at_peak(const CountedStep& step, Place place);

}  // namespace megatoken
