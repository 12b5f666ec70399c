// Independent pieces of work on several threads.
#pragma once

#include <cstddef>

#include "text/function_ref.h"

namespace megatoken {

// Calls work(i) for every i in [0, count), on at most `threads` threads, the caller's among them. The first exception
// is thrown here after all have stopped.
void for_each_parallel(std::size_t count, int threads, FunctionRef<void(std::size_t)> work);

}  // namespace megatoken
