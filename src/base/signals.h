// SIGTERM and SIGINT ask the run to stop after the step at hand; a second one ends the process at once.
#pragma once

namespace megatoken {

// Installs the handlers; idempotent.
void watch_stop_signals();
// The number of the signal that asked to stop, 0 when none has. Async-signal-safe, thread-safe.
int stop_signal();

}  // namespace megatoken
