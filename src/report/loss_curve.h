// A small chart of numbers for a terminal of any kind: plain ASCII, no colour.
#pragma once

#include <string>
#include <vector>

namespace megatoken {

// `values` by step from `first_step`, averaged into at most `width` columns and drawn `height` rows high, with the scale on
// the left and the steps below. Non-finite values leave gaps. Fewer than two values: an empty string. No trailing newline.
std::string draw_curve(const std::vector<double>& values, long long first_step, int width, int height);

}  // namespace megatoken
