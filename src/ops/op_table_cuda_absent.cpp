// Stands in for the CUDA ops in a build without CUDA.
#include "base/error.h"
#include "ops/op_table.h"

namespace megatoken {

const OpTable& cuda_op_table() {
  throw FitError("this megatoken was built without CUDA: build it with a CUDA toolkit, or set device: cpu");
}

}  // namespace megatoken
