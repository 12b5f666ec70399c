// Stands in for comm/nccl in a build without CUDA.
#include "comm/nccl_group.h"

namespace megatoken {

std::shared_ptr<Group> create_nccl_group(std::shared_ptr<Group> /*host*/, const Device& /*device*/) {
  throw FitError("this megatoken was built without CUDA and NCCL: build it with a CUDA toolkit, or set device: cpu");
}

}  // namespace megatoken
