#include "ops/op_table.h"

#include "ops/attention_room.h"
#include "ops/grouped_room.h"
#include "ops/op_table_cpu.h"

namespace megatoken {

const OpTable& counting_op_table(bool on_cuda) {
  static const OpTable cpu = {
      .attention_forward_workspace = attention_forward_workspace_cpu,
      .attention_backward_workspace = attention_backward_workspace_cpu,
      .grouped_gemm_workspace = grouped_gemm_workspace_cpu,
  };
  static const OpTable cuda = {
      .attention_forward_workspace = attention_forward_workspace_cuda,
      .attention_backward_workspace = attention_backward_workspace_cuda,
      .grouped_gemm_workspace = grouped_gemm_workspace_cuda,
  };
  return on_cuda ? cuda : cpu;
}

}  // namespace megatoken
