#include "train/machine_rates.h"

#include <algorithm>

namespace megatoken {

MachineRates default_rates(bool on_cuda, int64 cores_per_rank) {
  MachineRates rates;
  if (on_cuda) {
    rates.gemm_flops = 661e12;
    rates.attention_forward_flops = 590e12;
    rates.attention_backward_flops = 535e12;
    rates.memory_bytes = 3.9e12;
    rates.h2d_bytes = 54e9;
    rates.d2h_bytes = 55e9;
    rates.duplex_bytes = 92e9;
    rates.exchange_bytes = 300e9;
    rates.op_overhead_s = 4e-6;
    return rates;
  }
  const auto cores = static_cast<double>(std::max<int64>(cores_per_rank, 1));
  rates.gemm_flops = 60e9 * cores;
  rates.attention_forward_flops = 40e9 * cores;
  rates.attention_backward_flops = 40e9 * cores;
  rates.memory_bytes = 8e9 * cores;
  rates.h2d_bytes = rates.d2h_bytes = 5e9;
  rates.duplex_bytes = 8e9;
  rates.exchange_bytes = 2e9;
  rates.op_overhead_s = 2e-6;
  return rates;
}

}  // namespace megatoken
