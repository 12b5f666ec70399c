// What vendors' data sheets promise, to measure a run against.
#pragma once

#include <optional>
#include <string_view>

namespace megatoken {

// Dense bfloat16 FLOP/s with float32 sums of a GPU by its driver's name, such as "NVIDIA H200"; nothing when unknown.
std::optional<double> peak_bf16_flops(std::string_view device_name);

}  // namespace megatoken
