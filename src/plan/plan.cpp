#include "plan/plan.h"

#include <algorithm>

#include "base/error.h"
#include "plan/lifetimes.h"

namespace megatoken {

Plan::Plan(std::vector<PlannedSite> sites, PlaceBytes live_bound) : sites_(std::move(sites)), bound_(live_bound) {
  for (std::size_t i = 0; i < sites_.size(); ++i) {
    const PlannedSite& site = sites_[i];
    const auto place = static_cast<std::size_t>(site.place);
    check(site.offset >= 0 && site.offset % kArenaAlignment == 0 && site.bytes >= 0,
          "site '{}' planned at {} ({} bytes)", site.name, site.offset, site.bytes);
    check(index_[place].emplace(site.name, i).second, "site '{}' is planned twice", site.name);
    if (site.bytes > 0) arena_[place] = std::max(arena_[place], site.offset + align_up(site.bytes));
  }
}

const PlannedSite* Plan::find(std::string_view name, Place place) const {
  const auto& index = index_[static_cast<std::size_t>(place)];
  const auto found = index.find(name);
  return found == index.end() ? nullptr : &sites_[found->second];
}

std::optional<std::string> Plan::misfit(const CountedStep& step) const {
  std::vector<const PlannedSite*> planned;
  planned.reserve(step.sites.size());
  for (const SiteLifetimes& site : step.sites) {
    const PlannedSite* at = find(site.name, site.place);
    if (at == nullptr) return fmt::format("buffer '{}' ({}) is not in the plan", site.name, name_of(site.place));
    if (site.bytes > at->bytes)
      return fmt::format("buffer '{}' ({}) needs {} bytes, the plan has {}", site.name, name_of(site.place), site.bytes,
                         at->bytes);
    planned.push_back(at);
  }
  const auto neighbours = simultaneous_sites(step);
  for (std::size_t a = 0; a < neighbours.size(); ++a) {
    for (const std::int32_t b : neighbours[a]) {
      if (static_cast<std::size_t>(b) < a) continue;
      const PlannedSite& one = *planned[a];
      const PlannedSite& other = *planned[static_cast<std::size_t>(b)];
      if (one.offset < other.offset + step.sites[static_cast<std::size_t>(b)].bytes &&
          other.offset < one.offset + step.sites[a].bytes)
        return fmt::format("buffers '{}' and '{}' ({}) live at once and share bytes in the plan", one.name, other.name,
                           name_of(one.place));
    }
  }
  return std::nullopt;
}

Plan adapt(const Plan& plan, const CountedStep& step, const PlaceBytes& capacity) {
  const auto inside = [&](const Plan& p) {
    return p.arena_bytes(Place::device) <= capacity[0] && p.arena_bytes(Place::host) <= capacity[1];
  };
  if (inside(plan) && plan.fits(step)) return plan;
  Plan packed = pack(step);
  if (inside(packed)) return packed;
  const Place place = packed.arena_bytes(Place::device) > capacity[0] ? Place::device : Place::host;
  const auto largest = sites_at_peak(step, place);
  throw FitError(
      "the step needs {} bytes of {} memory and the arena has {}; the largest buffer at the peak is '{}' ({} bytes)",
      packed.arena_bytes(place), name_of(place), capacity[static_cast<std::size_t>(place)],
      largest.empty() ? "none" : largest.front().name, largest.empty() ? 0 : largest.front().bytes);
}

PlaceBytes arena_for(const std::vector<const Plan*>& plans) {
  PlaceBytes bytes{};
  for (const Plan* plan : plans)
    for (std::size_t p = 0; p < bytes.size(); ++p) bytes[p] = std::max(bytes[p], plan->arena_bytes()[p]);
  return bytes;
}

}  // namespace megatoken
