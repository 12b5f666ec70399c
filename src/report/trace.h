// A timeline in the trace-event format that chrome://tracing and Perfetto (ui.perfetto.dev) read.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace megatoken {

struct TraceSlice {
  std::size_t track = 0;  // of Trace::tracks
  std::string name;
  std::string category;
  double begin_us = 0;
  double end_us = 0;
  std::vector<std::pair<std::string, double>> arguments;
};

// Something that lives on a numbered lane beside the tracks, whatever overlaps it.
struct TraceLifetime {
  std::string group;  // such as "device memory"
  std::string name;
  double begin_us = 0;
  double end_us = 0;
  std::int64_t bytes = 0;
  std::int64_t offset = 0;
};

struct Trace {
  std::string process;
  std::int64_t process_id = 0;
  std::vector<std::string> tracks;
  std::vector<TraceSlice> slices;
  std::vector<TraceLifetime> lifetimes;
};

// One JSON object. Each group of lifetimes also yields a counter: its live bytes over time.
std::string trace_json(const Trace& trace);

}  // namespace megatoken
