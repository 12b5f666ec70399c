#include "train/model_flops.h"

namespace megatoken {

double forward_flops(const ModelSpec& spec, int64 document_length) {
  const auto length = static_cast<double>(document_length);
  const auto h = static_cast<double>(spec.hidden_size);
  const auto projections =
      h * static_cast<double>(spec.query_size() + 2 * spec.kv_size()) + h * static_cast<double>(spec.query_size());
  // Of the experts, those that a token is sent to.
  const ExpertSpec& e = spec.experts;
  const auto width = static_cast<double>(e.per_token * e.intermediate_size + e.shared_intermediate_size);
  const double sparse = h * static_cast<double>(e.count + (e.shared_intermediate_size > 0 ? 1 : 0)) + 3 * h * width;
  const double dense = 3 * h * static_cast<double>(spec.intermediate_size);
  const auto layers = static_cast<double>(spec.num_layers), sparse_layers = static_cast<double>(spec.sparse_layers());
  const double weights = layers * projections + sparse_layers * sparse + (layers - sparse_layers) * dense;
  const double pairs = length * (length + 1) / 2;
  const double attention = 4 * pairs * static_cast<double>(spec.query_size());
  return 2 * length * weights + layers * attention +
         2 * length * h * static_cast<double>(spec.vocab_size);
}

}  // namespace megatoken
