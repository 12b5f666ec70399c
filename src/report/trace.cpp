#include "report/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

namespace megatoken {
namespace {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class Writer {
 public:
  explicit Writer(std::int64_t process_id) : process_id_(process_id) {}

  // fields: members of the event beside its process and phase, as JSON.
  void event(char phase, const std::string& name, const std::string& fields) {
    fmt::format_to(std::back_inserter(text_), "{}{{\"ph\":\"{}\",\"pid\":{},\"name\":{}{}}}", first_ ? "" : ",\n",
                   phase, process_id_, quoted(name), fields);
    first_ = false;
  }
  std::string finish() { return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + text_ + "\n]}\n"; }

 private:
  std::int64_t process_id_;
  bool first_ = true;
  std::string text_;
};

void write_counters(Writer& writer, const std::vector<TraceLifetime>& lifetimes) {
  std::map<std::string, std::map<double, std::int64_t>> changes;
  for (const TraceLifetime& life : lifetimes) {
    changes[life.group][life.begin_us] += life.bytes;
    changes[life.group][life.end_us] -= life.bytes;
  }
  for (const auto& [group, steps] : changes) {
    std::int64_t live = 0;
    for (const auto& [at, change] : steps) {
      live += change;
      writer.event('C', group, fmt::format(",\"ts\":{:.3f},\"args\":{{\"bytes\":{}}}", at, live));
    }
  }
}

}  // namespace

std::string trace_json(const Trace& trace) {
  Writer writer(trace.process_id);
  writer.event('M', "process_name", fmt::format(",\"args\":{{\"name\":{}}}", quoted(trace.process)));
  for (std::size_t t = 0; t < trace.tracks.size(); ++t) {
    writer.event('M', "thread_name", fmt::format(",\"tid\":{},\"args\":{{\"name\":{}}}", t, quoted(trace.tracks[t])));
    writer.event('M', "thread_sort_index", fmt::format(",\"tid\":{},\"args\":{{\"sort_index\":{}}}", t, t));
  }
  for (const TraceSlice& slice : trace.slices) {
    std::string arguments;
    for (const auto& [name, value] : slice.arguments)
      arguments += fmt::format("{}{}:{:.6g}", arguments.empty() ? "" : ",", quoted(name), value);
    writer.event(
        'X', slice.name,
        fmt::format(",\"cat\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},\"args\":{{{}}}", quoted(slice.category),
                    slice.track, slice.begin_us, slice.end_us - slice.begin_us, arguments));
  }
  for (std::size_t i = 0; i < trace.lifetimes.size(); ++i) {
    const TraceLifetime& life = trace.lifetimes[i];
    const std::string common = fmt::format(",\"cat\":{},\"id\":{},\"tid\":0", quoted(life.group), i);
    writer.event('b', life.name,
                 fmt::format("{},\"ts\":{:.3f},\"args\":{{\"bytes\":{},\"offset\":{}}}", common, life.begin_us,
                             life.bytes, life.offset));
    writer.event('e', life.name, fmt::format("{},\"ts\":{:.3f}", common, life.end_us));
  }
  write_counters(writer, trace.lifetimes);
  return writer.finish();
}

}  // namespace megatoken
