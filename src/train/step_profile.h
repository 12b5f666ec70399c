// What a recorded step spent its time on.
#pragma once

#include <string>

#include "report/trace.h"
#include "step/timeline.h"

namespace megatoken {

// A table for people: the compute stream's time by kind of op (with what it waited and stood idle for, of `seconds`),
// the largest ops with their rates, and how busy the other streams were.
std::string profile_table(const Timeline& timeline, double seconds);

// One track a stream; arenas' buffers as lifetimes.
Trace make_trace(const Timeline& timeline, int64 rank);

}  // namespace megatoken
