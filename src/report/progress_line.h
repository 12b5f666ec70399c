// The one line that a terminal shows while a run goes on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace megatoken {

struct ProgressState {
  std::int64_t step = 0, steps = 0;                 // the one at hand, from 1
  std::int64_t micro_batch = 0, micro_batches = 0;  // the one at hand, from 1; shown when there are several
  std::string phase;                                // "forward", "backward", ...; "": between phases
  std::int64_t part = 0, parts = 0;                 // of the phase: layers, the one at hand from 1; 0: not shown
  double share = 0;                                 // of the whole run that is done, 0 to 1
  std::optional<double> seconds_left;               // of the whole run
};

// At most columns - 1 characters, all of them ASCII and none of them a control character: what matters least is left
// out where there is no room, first the bar.
std::string progress_line(const ProgressState& state, int columns);

// 3723 as 1h02m, 62 as 1m02s, 2 as 2s.
std::string duration_text(double seconds);

}  // namespace megatoken
