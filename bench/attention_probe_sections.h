// The questions, in the order in which they are asked.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "attention_probe_rig.h"

namespace megatoken::probe {

struct Section {
  std::string name;
  bool needs_device = true;
  bool by_default = true;
  bool cold = false;  // runs before any graph is built ahead
  std::function<void(Rig&)> run;
};

const std::vector<Section>& sections();

// Several documents packed without padding, in one call.
void run_ragged(Rig& rig);
// Bitwise repetition of the backward pass, and what cuDNN's deterministic attribute costs.
void run_determinism(Rig& rig);
// Forward by key blocks, merged; backward by key blocks with the merged o and log-sum-exp.
void run_blocks(Rig& rig);
// Build time with and without dynamic shapes and the kernel cache.
void run_builds(Rig& rig);

}  // namespace megatoken::probe
