// What the planner engaged to stay inside the budget, a line a lever.
#pragma once

#include "train/planner/search.h"

namespace megatoken {

// One entry for each way in which `chosen` differs from the search's initial choice, in the order in which levers are
// engaged: what the plan would take without this lever alone, the others kept.
std::vector<Lever> explain_levers(PolicySearch& search, const Choice& chosen, const PlanBudget& budget);

}  // namespace megatoken
