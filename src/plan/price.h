// How long a counted step takes on a machine: its ops at the machine's rates, its four streams side by side, compute
// waiting where the step joins. Pure arithmetic, a few microseconds per hundred events.
#pragma once

#include <array>
#include <map>
#include <string>

#include "plan/counted_step.h"

namespace megatoken {

// Sustained rates, all above zero; and what a few units of work (ops/cost.h) reach: n of them run at n / (n + half) of
// the short rate, at most at the sustained one. A short rate of 0: units don't matter.
struct UnitRate {
  double short_flops = 0;
  double half = 0;
};
struct MachineRates {
  double gemm_flops = 0;  // per second
  double attention_forward_flops = 0;
  double attention_backward_flops = 0;
  double memory_bytes = 0;  // per second, read plus written
  double h2d_bytes = 0;
  double d2h_bytes = 0;
  double duplex_bytes = 0;  // h2d and d2h at once, together
  double exchange_bytes = 0;
  double op_overhead_s = 0;  // per op: launching it
  UnitRate gemm_units, attention_forward_units, attention_backward_units;
};

struct StepPrice {
  double total_s = 0;
  // Of compute's own ops; with the exposed times they add up to the total.
  std::array<double, kNumWorkKinds> compute_s{};
  // compute standing still until an op of the stream was done (element compute: 0).
  std::array<double, kNumStreams> exposed_s{};
  // The same by the reason that the step gave.
  std::map<std::string, double> exposed_by_reason;
  // How long each stream was at work.
  std::array<double, kNumStreams> busy_s{};

  double exposed_total_s() const { return exposed_s[1] + exposed_s[2] + exposed_s[3]; }
};

// An op on a stream starts when the stream is free, compute has come to where it was issued, and the ops it names are
// done. It takes the longer of its FLOPs and its bytes at their rates. Where h2d and d2h overlap, the later one gets
// what duplex_bytes leaves. A collapsed period is priced once, in its steady state, and its advance multiplied.
// ConfigError naming the rate when one is not above zero.
StepPrice price(const CountedStep& step, const MachineRates& rates);

}  // namespace megatoken
