// Runs a function as every rank of a group of threads.
#pragma once

#include <functional>

#include "comm/group.h"

namespace megatoken {

// Calls `body` as rank 0 .. size-1, each on a thread of its own (one rank: on the caller's), and joins them. An
// exception in one rank aborts the group with its message; the culprit's own exception is rethrown, not what the others
// got from it.
void run_ranks(int64 size, const std::function<void(Group& world)>& body);

}  // namespace megatoken
