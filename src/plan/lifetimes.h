// Which sites of a counted step live at the same time.
#pragma once

#include <vector>

#include "plan/counted_step.h"

namespace megatoken {

// neighbours[i]: ascending indices of the sites of i's place that share an event with it. Sites of no bytes have none.
std::vector<std::vector<std::int32_t>> simultaneous_sites(const CountedStep& step);

}  // namespace megatoken
