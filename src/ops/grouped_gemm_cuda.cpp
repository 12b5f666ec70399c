#include "device/cuda/cuda_stream.h"
#include "ops/cuda/grouped_plain.h"
#include "ops/cuda/storage.h"
#include "ops/op_table_cuda.h"

namespace megatoken {

void grouped_gemm_cuda(Stream& stream, const GroupedGemm& op) {
  validate(op);
  cuda::require_bf16("grouped_gemm", "a", op.a);
  if (op.rows() == 0 || op.d.empty()) return;
  CudaStream& cuda = cuda_stream(stream);
  cuda::grouped_plain(cuda, op);
  cuda.launched("grouped_gemm");
}

}  // namespace megatoken
