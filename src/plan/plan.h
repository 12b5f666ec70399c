// Where every buffer site of a step lies in the arena. Sites whose lifetimes meet never overlap.
//
// Packing a set of lifetimes into the smallest arena is NP-hard (dynamic storage allocation); here sites are placed one
// after the other at the lowest or the tightest gap, in a few orders (longest lifetime first, largest first, ...), then
// the best order is improved by moving sites to other turns until a lower bound is met. Deterministic.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/counted_step.h"

namespace megatoken {

struct PlannedSite {
  std::string name;
  Place place = Place::device;
  int64 offset = 0;  // in the place's arena, a multiple of kArenaAlignment
  int64 bytes = 0;   // the largest use it was planned for
};

using PlaceBytes = std::array<int64, kNumPlaces>;

class Plan {
 public:
  Plan() = default;
  explicit Plan(std::vector<PlannedSite> sites, PlaceBytes live_bound);

  const std::vector<PlannedSite>& sites() const { return sites_; }
  // nullptr when there is none.
  const PlannedSite* find(std::string_view name, Place place) const;

  int64 arena_bytes(Place place) const { return arena_[static_cast<std::size_t>(place)]; }
  const PlaceBytes& arena_bytes() const { return arena_; }
  // The largest sum of live bytes: what the arena cannot go below.
  int64 live_bound(Place place) const { return bound_[static_cast<std::size_t>(place)]; }

  // Why `step` cannot run at these offsets (one line naming the buffers), or nothing when it can: every site planned
  // and large enough, and no two sites that live at once in `step` overlap here.
  std::optional<std::string> misfit(const CountedStep& step) const;
  bool fits(const CountedStep& step) const { return !misfit(step).has_value(); }

 private:
  std::array<std::map<std::string, std::size_t, std::less<>>, kNumPlaces> index_;
  std::vector<PlannedSite> sites_;
  PlaceBytes arena_{};
  PlaceBytes bound_{};
};

Plan pack(const CountedStep& step);

// A plan for `step` inside an arena of `capacity` bytes: `plan` itself when it fits, else a new packing, else FitError
// naming the largest buffer alive at the peak.
Plan adapt(const Plan& plan, const CountedStep& step, const PlaceBytes& capacity);

// The arena that serves each of the plans, one at a time.
PlaceBytes arena_for(const std::vector<const Plan*>& plans);

}  // namespace megatoken
