// FLOPs of the model itself: 3 x forward, attention counted causal, nothing recomputed. What mfu and tflops_per_device
// are measured in, whatever the step really executes.
#pragma once

#include <span>

#include "spec/model_spec.h"

namespace megatoken {

double forward_flops(const ModelSpec& spec, int64 document_length);

}  // namespace megatoken
