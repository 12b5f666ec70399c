#include "train/model_flops.h"

namespace megatoken {

double forward_flops(const ModelSpec& spec, int64 document_length) {
  const auto length = static_cast<double>(document_length);
  const auto h = static_cast<double>(spec.hidden_size);
  const auto layer = h * static_cast<double>(spec.query_size() + 2 * spec.kv_size()) +
                     h * static_cast<double>(spec.query_size()) + 3 * h * static_cast<double>(spec.intermediate_size);
  const double pairs = length * (length + 1) / 2;
  const double attention = 4 * pairs * static_cast<double>(spec.query_size());
  return static_cast<double>(spec.num_layers) * (2 * length * layer + attention) +
         2 * length * h * static_cast<double>(spec.vocab_size);
}

}  // namespace megatoken
