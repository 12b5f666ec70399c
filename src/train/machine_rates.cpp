#include "train/machine_rates.h"

#include <algorithm>

namespace megatoken {

MachineRates default_rates(bool on_cuda, int64 cores_per_rank) {
  MachineRates rates;
  if (on_cuda) {
    rates.gemm_flops = 661e12;
    rates.attention_forward_flops = 605e12;
    rates.attention_backward_flops = 537e12;
    rates.memory_bytes = 3.1e12;
    rates.h2d_bytes = 54e9;
    rates.d2h_bytes = 55e9;
    rates.duplex_bytes = 92e9;
    rates.exchange_bytes = 300e9;
    rates.op_overhead_s = 4e-6;
    // docs/cudnn.md, "Speed": causal calls of 256 to 4096 tiles; docs/gpu_log.md: products of 64 tiles at 330 TFLOP/s.
    rates.gemm_units = {800e12, 92};
    rates.attention_forward_units = {680e12, 264};
    rates.attention_backward_units = {600e12, 200};
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
