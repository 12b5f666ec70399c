#include "plan/lifetimes.h"

#include <algorithm>

namespace megatoken {

std::vector<std::vector<std::int32_t>> simultaneous_sites(const CountedStep& step) {
  const auto count = step.sites.size();
  // Every event begins or ends at most one lifetime: +(site + 1), -(site + 1), or 0.
  std::vector<std::int32_t> begins(static_cast<std::size_t>(step.end_time + 1), 0);
  std::vector<std::int32_t> ends(static_cast<std::size_t>(step.end_time + 1), 0);
  for (std::size_t i = 0; i < count; ++i) {
    if (step.sites[i].bytes == 0) continue;
    for (const Interval& interval : step.sites[i].lifetimes) {
      begins[static_cast<std::size_t>(interval.begin)] = static_cast<std::int32_t>(i + 1);
      ends[static_cast<std::size_t>(interval.end)] = static_cast<std::int32_t>(i + 1);
    }
  }
  std::vector<bool> seen(count * count, false);
  std::vector<std::vector<std::int32_t>> neighbours(count);
  std::vector<std::int32_t> live;
  for (std::size_t t = 0; t < begins.size(); ++t) {
    if (ends[t] != 0) std::erase(live, ends[t] - 1);
    if (begins[t] == 0) continue;
    const std::int32_t a = begins[t] - 1;
    for (const std::int32_t b : live) {
      if (step.sites[static_cast<std::size_t>(a)].place != step.sites[static_cast<std::size_t>(b)].place) continue;
      const std::size_t pair =
          static_cast<std::size_t>(std::min(a, b)) * count + static_cast<std::size_t>(std::max(a, b));
      if (seen[pair]) continue;
      seen[pair] = true;
      neighbours[static_cast<std::size_t>(a)].push_back(b);
      neighbours[static_cast<std::size_t>(b)].push_back(a);
    }
    live.push_back(a);
  }
  for (auto& list : neighbours) std::sort(list.begin(), list.end());
  return neighbours;
}

}  // namespace megatoken
