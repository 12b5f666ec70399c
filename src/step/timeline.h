// When the ops of an executed step ran and its buffers lived.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "ops/cost.h"
#include "plan/plan.h"
#include "plan/stream_id.h"

namespace megatoken {

struct TimelineEntry {
  std::string name;  // of the op, or "wait: why"
  StreamId stream = StreamId::compute;
  bool waiting = false;
  Cost cost;            // of the op
  double begin_ns = 0;  // since the start of the step
  double end_ns = 0;
};

struct TimelineBuffer {
  std::string name;  // of the site
  Place place = Place::device;
  int64 bytes = 0;
  int64 offset = 0;     // in the arena
  double begin_ns = 0;  // compute comes to the first op after its lifetime began
  double end_ns = 0;    // compute has done the last op before its lifetime ended
};

struct Timeline {
  std::vector<TimelineEntry> entries;   // by begin
  std::vector<TimelineBuffer> buffers;  // in the order in which their lifetimes ended
};

// Collects marks while a step runs. Operations of one stream come from one thread; a stream of its own thread may add
// to its own lane only.
class TimelineRecorder {
 public:
  using Mark = std::shared_ptr<const TimeMark>;
  bool begun() const { return start_ != nullptr; }
  void begin(Mark start) { start_ = std::move(start); }
  void add(StreamId stream, std::string name, bool waiting, const Cost& cost, Mark begin, Mark end);
  void begin_buffer(int64 id);
  void end_buffer(int64 id, std::string_view name, Place place, int64 bytes, int64 offset);
  // The timeline of a step whose streams are all joined; the recorder is empty afterwards.
  Timeline take();

 private:
  struct Lap {
    TimelineEntry entry;
    Mark begin, end;
  };
  struct Life {
    TimelineBuffer buffer;
    std::size_t first = 0, last = 0;  // laps of compute: [first, last)
  };
  Mark start_;
  std::array<std::vector<Lap>, kNumStreams> laps_;
  std::vector<std::pair<int64, std::size_t>> open_;  // id of a live buffer, its first lap
  std::vector<Life> lives_;
};

}  // namespace megatoken
