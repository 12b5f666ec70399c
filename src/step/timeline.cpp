#include "step/timeline.h"

#include <algorithm>
#include <utility>

namespace megatoken {

void TimelineRecorder::add(StreamId stream, std::string name, bool waiting, const Cost& cost, Mark begin, Mark end) {
  laps_[static_cast<std::size_t>(stream)].push_back(
      {{std::move(name), stream, waiting, cost, 0, 0}, std::move(begin), std::move(end)});
}

void TimelineRecorder::begin_buffer(int64 id) { open_.emplace_back(id, laps_[0].size()); }

void TimelineRecorder::end_buffer(int64 id, std::string_view name, Place place, int64 bytes, int64 offset) {
  const auto found = std::find_if(open_.rbegin(), open_.rend(), [id](const auto& open) { return open.first == id; });
  if (found == open_.rend()) return;
  lives_.push_back({{std::string(name), place, bytes, offset, 0, 0}, found->second, laps_[0].size()});
  open_.erase(std::next(found).base());
}

Timeline TimelineRecorder::take() {
  TimelineRecorder recorded = std::exchange(*this, TimelineRecorder());
  Timeline timeline;
  if (!recorded.begun()) return timeline;
  for (auto& lane : recorded.laps_)
    for (Lap& lap : lane) {
      lap.entry.begin_ns = lap.begin->ns_since(*recorded.start_);
      lap.entry.end_ns = lap.entry.begin_ns + lap.end->ns_since(*lap.begin);
    }
  const auto& compute = recorded.laps_[0];
  for (Life& life : recorded.lives_) {
    if (life.first >= life.last) continue;  // compute did nothing meanwhile
    life.buffer.begin_ns = compute[life.first].entry.begin_ns;
    life.buffer.end_ns = compute[life.last - 1].entry.end_ns;
    timeline.buffers.push_back(std::move(life.buffer));
  }
  for (auto& lane : recorded.laps_)
    for (Lap& lap : lane) timeline.entries.push_back(std::move(lap.entry));
  std::stable_sort(timeline.entries.begin(), timeline.entries.end(),
                   [](const TimelineEntry& a, const TimelineEntry& b) { return a.begin_ns < b.begin_ns; });
  return timeline;
}

}  // namespace megatoken
