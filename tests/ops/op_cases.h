// Every row of the op table test, for whichever backend includes it.
#pragma once

#include "ops/attention_cases.h"
#include "ops/dense_cases.h"
#include "ops/expert_cases.h"
#include "ops/layer_cases.h"

namespace megatoken {

inline std::vector<OpCase> op_cases() {
  std::vector<OpCase> cases;
  gemm_cases(cases);
  elementwise_cases(cases);
  row_cases(cases);
  rms_norm_cases(cases);
  norm_rope_cases(cases);
  swiglu_cases(cases);
  cross_entropy_cases(cases);
  attention_cases(cases);
  expert_cases(cases);
  return cases;
}

// The same numbers in every run of a case.
inline std::uint64_t seed_of(const std::string& name) {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

}  // namespace megatoken
