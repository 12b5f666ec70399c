// Parameters laid out flat: one bucket a layer, one for the embedding, one for the head. A bucket is the unit that is
// gathered, reduced, sharded and updated.
#pragma once

#include <string>
#include <vector>

#include "base/dtype.h"

namespace megatoken {

struct ParameterSpec {
  std::string name;  // as in the checkpoint: "model.layers.0.self_attn.q_proj.weight"
  int64 rows = 1;    // 1 for vectors
  int64 cols = 0;
  bool vector = false;  // one-dimensional in the checkpoint
  bool decay = true;    // weight decay applies (not to norms and biases)
  int64 offset = 0;     // elements from the start of the bucket
  int64 experts = 0;    // > 0: so many experts' matrices [rows / experts, cols], one behind the other
  // Where the checkpoint stores it under other names: of the whole, or of the equal parts of each expert in order, with
  // {} for the expert's number. Empty: one tensor by `name`, [experts, rows / experts, cols] where there are experts.
  std::vector<std::string> stored_names = {};

  int64 elements() const { return rows * cols; }
};

// A tensor of a checkpoint and the elements of a parameter that it holds.
struct StoredTensor {
  std::string name;
  std::vector<int64> shape;
  int64 first = 0;  // element of the parameter
  int64 count = 0;
};
// In the parameter's order, together all of it.
std::vector<StoredTensor> stored_tensors(const ParameterSpec& parameter);

struct BucketSpec {
  std::string name;  // "embedding", "layer 3", "head"
  std::vector<ParameterSpec> parameters;
  int64 elements = 0;  // end of the last parameter

  // Appends a parameter right behind the previous one, or at the next multiple of kAlignment elements.
  void add(ParameterSpec parameter, bool adjacent = false) {
    if (!adjacent) elements = (elements + kAlignment - 1) / kAlignment * kAlignment;
    parameter.offset = elements;
    elements += parameter.elements();
    parameters.push_back(std::move(parameter));
  }

  static constexpr int64 kAlignment = 64;  // 128 bytes of bf16: vector loads and tensor-map bases
};

}  // namespace megatoken
