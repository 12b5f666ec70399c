// Rows of a table by token id, and the deterministic scatter-add of its gradient.
#pragma once

#include "ops/cost.h"
#include "tensor/view.h"

namespace megatoken {

struct Embedding {
  View ids;    // [T, 1] i32, each in [0, V)
  View table;  // [V, H] f32 or bf16
  View y;      // [T, H] dtype of table
};

struct EmbeddingBackward {
  View ids;     // [T, 1] i32
  View dy;      // [T, H] f32 or bf16
  View dtable;  // [V, H] f32, added to, in token order whatever the thread count
};

void validate(const Embedding& op);
void validate(const EmbeddingBackward& op);
Cost cost_of(const Embedding& op);
Cost cost_of(const EmbeddingBackward& op);

}  // namespace megatoken
