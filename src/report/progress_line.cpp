#include "report/progress_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace megatoken {

std::string duration_text(double seconds) {
  constexpr double kLongest = 1e9;
  const auto s =
      static_cast<std::int64_t>(std::clamp(std::isfinite(seconds) ? seconds + 0.5 : kLongest, 0.0, kLongest));
  if (s >= 3600) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  if (s >= 60) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}s", s);
}

std::string progress_line(const ProgressState& state, int columns) {
  constexpr std::size_t kBar = 24;
  const auto room = static_cast<std::size_t>(std::max(columns - 1, 0));
  const auto filled = static_cast<std::size_t>(std::clamp(state.share, 0.0, 1.0) * kBar);
  const std::string bar = fmt::format("[{}{}] ", std::string(filled, '#'), std::string(kBar - filled, '.'));
  const std::string step = fmt::format("step {}/{}", state.step, state.steps);
  const std::string micro =
      state.micro_batches > 1 ? fmt::format(" micro-batch {}/{}", state.micro_batch, state.micro_batches) : "";
  const std::string of = state.part > 0 && state.parts > 0 ? fmt::format("{}/{}", state.part, state.parts) : "";
  const std::string phase =
      fmt::format("{}{}{}{}", state.phase.empty() ? "" : " ", state.phase, of.empty() ? "" : " layer ", of);
  const std::string phase_short =
      fmt::format("{}{}{}{}", state.phase.empty() ? "" : " ", state.phase, of.empty() ? "" : " ", of);
  const std::string left = state.seconds_left ? " left " + duration_text(*state.seconds_left) : "";
  for (std::string line : {bar + step + micro + phase + left, step + micro + phase + left,
                           step + micro + phase_short + left, step + phase_short + left, step + left, step})
    if (line.size() <= room) return line;
  return step.substr(0, room);
}

}  // namespace megatoken
