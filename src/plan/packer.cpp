// The packing behind pack() of plan.h. On the steps of Qwen3 0.6B to 32B at 64K and 1M tokens under budgets of 8 to 500
// GiB it reaches the clique bound, so none smaller with one offset a site exists.
#include <algorithm>
#include <utility>

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
    meet_.assign(bytes_.size() * bytes_.size(), 0);
    for (std::size_t a = 0; a < neighbours_.size(); ++a)
      for (const std::int32_t b : neighbours_[a]) meet_[a * bytes_.size() + static_cast<std::size_t>(b)] = 1;
  }

  // No packing of one offset a site is smaller than the heaviest set of sites of which each two live at once (they need
  // not all live at once). A greedy one from every start; it is often the best packing's size, which ends the search.
  int64 clique_bound(const std::vector<std::int32_t>& sites) const {
    std::vector<std::int32_t> heavy_first = sites;
    std::stable_sort(heavy_first.begin(), heavy_first.end(), [&](std::int32_t a, std::int32_t b) {
      return bytes_[static_cast<std::size_t>(a)] > bytes_[static_cast<std::size_t>(b)];
    });
    int64 bound = 0;
    std::vector<std::int32_t> clique;
    for (const std::int32_t start : heavy_first) {
      clique.assign(1, start);
      int64 bytes = bytes_[static_cast<std::size_t>(start)];
      for (const std::int32_t site : heavy_first) {
        if (!std::all_of(clique.begin(), clique.end(), [&](std::int32_t member) { return meet(site, member); }))
          continue;
        clique.push_back(site);
        bytes += bytes_[static_cast<std::size_t>(site)];
      }
      bound = std::max(bound, bytes);
    }
    return bound;
  }

  Packing best(std::vector<std::int32_t> sites, int64 live_bound) const {
    const int64 bound = std::max(live_bound, clique_bound(sites));
    Packing best;
    best.bytes = -1;
    std::vector<std::int32_t> best_order;
    const auto attempt = [&](const std::vector<std::int32_t>& order, Gap gap) {
      Packing packing = place(order, gap);
      if (best.bytes >= 0 && packing.bytes >= best.bytes) return false;
      best = std::move(packing);
      best_order = order;
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
    improve(best, std::move(best_order), bound);
    return best;
  }

 private:
  bool meet(std::int32_t a, std::int32_t b) const {
    return meet_[static_cast<std::size_t>(a) * bytes_.size() + static_cast<std::size_t>(b)] != 0;
  }

  static constexpr int kImprovements = 500;

  // Moves a site, often the topmost, to another turn; keeps what is no worse.
  void improve(Packing& best, std::vector<std::int32_t> order, int64 bound) const {
    std::uint64_t random = 0x9E3779B97F4A7C15ull;
    const auto pick = [&](std::size_t n) {
      random ^= random << 13;
      random ^= random >> 7;
      random ^= random << 17;
      return static_cast<std::size_t>(random % n);
    };
    Packing at = best;
    for (int round = 0; round < kImprovements && best.bytes > bound; ++round) {
      std::vector<std::int32_t> changed = order;
      const std::size_t from =
          pick(3) == 0 ? static_cast<std::size_t>(std::find(order.begin(), order.end(), at.top) - order.begin())
                       : pick(order.size());
      const std::size_t to = pick(order.size());
      const auto begin = changed.begin();
      if (from < to)
        std::rotate(begin + from, begin + from + 1, begin + to + 1);
      else
        std::rotate(begin + to, begin + from, begin + from + 1);
      Packing packing = place(changed, pick(4) == 0 ? Gap::tightest : Gap::lowest);
      if (packing.bytes > at.bytes) continue;
      at = std::move(packing);
      order = std::move(changed);
      if (at.bytes < best.bytes) best = at;
    }
  }

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

  // Sites in the order given, each in a gap between those placed before that live when it does.
  Packing place(const std::vector<std::int32_t>& order, Gap rule) const {
    Packing packing;
    packing.offset.assign(bytes_.size(), -1);
    std::vector<std::int32_t> placed;  // by offset
    placed.reserve(order.size());
    for (const std::int32_t site : order) {
      const auto s = static_cast<std::size_t>(site);
      int64 free_from = 0;
      int64 found = -1;
      int64 found_gap = 0;
      for (const std::int32_t other : placed) {
        const auto o = static_cast<std::size_t>(other);
        if (!meet(site, other)) continue;
        const int64 gap = packing.offset[o] - free_from;
        if (gap >= bytes_[s] && (found < 0 || gap < found_gap)) {
          found = free_from;
          found_gap = gap;
          if (rule == Gap::lowest) break;
        }
        free_from = std::max(free_from, packing.offset[o] + bytes_[o]);
      }
      const int64 offset = found >= 0 ? found : free_from;
      packing.offset[s] = offset;
      placed.insert(std::upper_bound(placed.begin(), placed.end(), offset,
                                     [&](int64 at, std::int32_t other) {
                                       return at < packing.offset[static_cast<std::size_t>(other)];
                                     }),
                    site);
      if (offset + bytes_[s] > packing.bytes) {
        packing.bytes = offset + bytes_[s];
        packing.top = site;
      }
    }
    return packing;
  }

  std::vector<std::vector<std::int32_t>> neighbours_;
  std::vector<char> meet_;  // [site, site]: alive at once
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
