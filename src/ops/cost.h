// What an op costs, known without a device: the planner prices a step from these.
#pragma once

#include "base/dtype.h"

namespace megatoken {

// Which rate of the machine bounds it.
enum class CostKind { memory, gemm, attention_forward, attention_backward, transfer, exchange };

struct Cost {
  CostKind kind = CostKind::memory;
  double flops = 0;  // multiply and add count as two
  double bytes = 0;  // bytes read plus written (memory), or bytes moved over the link (transfer, exchange)
  double units = 0;  // equal pieces that run side by side: few of them leave a GPU part empty; 0: enough
};

}  // namespace megatoken
