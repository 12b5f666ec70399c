// The packing behind pack() of plan.h.
#include <algorithm>
#include <numeric>

#include "plan/lifetimes.h"
#include "plan/plan.h"

namespace megatoken {
namespace {

enum class Gap { lowest, tightest };

struct Packing {
  std::vector<int64> offset;
  int64 bytes = 0;
  std::int32_t top = -1;  // the site that reaches `bytes`
};

class Packer {
 public:
  explicit Packer(const CountedStep& step) : neighbours_(simultaneous_sites(step)) {
    for (const SiteLifetimes& site : step.sites) {
      bytes_.push_back(align_up(site.bytes));
      int64 total = 0;
      for (const Interval& interval : site.lifetimes) total += interval.end - interval.begin;
      lifetime_.push_back(total);
      span_.push_back(site.lifetimes.empty() ? 0 : site.lifetimes.back().end - site.lifetimes.front().begin);
    }
  }

  Packing best(std::vector<std::int32_t> sites, int64 bound) const {
    Packing best;
    best.bytes = -1;
    std::vector<std::int32_t> best_order;
    Gap best_gap = Gap::lowest;
    const auto attempt = [&](const std::vector<std::int32_t>& order, Gap gap) {
      Packing packing = place(order, gap);
      if (best.bytes >= 0 && packing.bytes >= best.bytes) return false;
      best = std::move(packing);
      best_order = order;
      best_gap = gap;
      return true;
    };
    for (int rule = 0; rule < 5; ++rule) {
      std::stable_sort(sites.begin(), sites.end(),
                       [&](std::int32_t a, std::int32_t b) { return key(rule, a) > key(rule, b); });
      for (const Gap gap : {Gap::lowest, Gap::tightest}) {
        attempt(sites, gap);
        if (best.bytes <= bound) return best;
      }
    }
    // The topmost site was placed too late: place it earlier, by growing steps.
    int64 divisor = 2;
    for (int round = 0; round < kImprovements && best.bytes > bound; ++round) {
      std::vector<std::int32_t> order = best_order;
      const auto at = std::find(order.begin(), order.end(), best.top);
      const auto to = order.begin() + (at - order.begin()) / divisor;
      std::rotate(to, at, at + 1);
      const bool better =
          attempt(order, best_gap) || attempt(order, best_gap == Gap::lowest ? Gap::tightest : Gap::lowest);
      divisor = better ? 2 : divisor * 2;
      if (!better && to == order.begin()) break;
    }
    return best;
  }

 private:
  static constexpr int kImprovements = 48;

  double key(int rule, std::int32_t site) const {
    const auto i = static_cast<std::size_t>(site);
    const auto bytes = static_cast<double>(bytes_[i]);
    switch (rule) {
      case 0:
        return static_cast<double>(lifetime_[i]);
      case 1:
        return bytes;
      case 2:
        return static_cast<double>(span_[i]);
      case 3:
        return bytes * static_cast<double>(lifetime_[i]);
      default: {
        double crowd = 0;
        for (const std::int32_t n : neighbours_[i]) crowd += static_cast<double>(bytes_[static_cast<std::size_t>(n)]);
        return crowd;
      }
    }
  }

  Packing place(const std::vector<std::int32_t>& order, Gap rule) const {
    Packing packing;
    packing.offset.assign(bytes_.size(), -1);
    std::vector<Interval> taken;
    for (const std::int32_t site : order) {
      const auto s = static_cast<std::size_t>(site);
      taken.clear();
      for (const std::int32_t n : neighbours_[s]) {
        const auto other = static_cast<std::size_t>(n);
        if (packing.offset[other] >= 0) taken.push_back({packing.offset[other], packing.offset[other] + bytes_[other]});
      }
      std::sort(taken.begin(), taken.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
      int64 free_from = 0;
      int64 found = -1;
      int64 found_gap = 0;
      for (const Interval& t : taken) {
        const int64 gap = t.begin - free_from;
        if (gap >= bytes_[s] && (found < 0 || gap < found_gap)) {
          found = free_from;
          found_gap = gap;
          if (rule == Gap::lowest) break;
        }
        free_from = std::max(free_from, t.end);
      }
      packing.offset[s] = found >= 0 ? found : free_from;
      if (packing.offset[s] + bytes_[s] > packing.bytes) {
        packing.bytes = packing.offset[s] + bytes_[s];
        packing.top = site;
      }
    }
    return packing;
  }

  std::vector<std::vector<std::int32_t>> neighbours_;
  std::vector<int64> bytes_;
  std::vector<int64> lifetime_;
  std::vector<int64> span_;
};

}  // namespace

Plan pack(const CountedStep& step) {
  const Packer packer(step);
  std::vector<PlannedSite> planned;
  for (const SiteLifetimes& site : step.sites) planned.push_back({site.name, site.place, 0, site.bytes});
  for (const Place place : {Place::device, Place::host}) {
    std::vector<std::int32_t> sites;
    for (std::size_t i = 0; i < step.sites.size(); ++i)
      if (step.sites[i].place == place && step.sites[i].bytes > 0) sites.push_back(static_cast<std::int32_t>(i));
    const Packing packing = packer.best(sites, step.live_bytes(place));
    for (const std::int32_t i : sites)
      planned[static_cast<std::size_t>(i)].offset = packing.offset[static_cast<std::size_t>(i)];
  }
  return Plan(std::move(planned), step.peak_live_bytes);
}

}  // namespace megatoken
