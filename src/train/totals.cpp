#include "train/totals.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

namespace megatoken {

void Totals::add(const LocalBatch& batch) {
  for (std::size_t i = 0; i < batch.labels.size(); ++i) {
    const auto document = static_cast<std::size_t>(batch.label_document[i]);
    const int64 length = batch.layout.document_lengths()[document];
    const auto part = static_cast<std::size_t>(batch.label_position[i] * kPositionParts / length);
    loss += batch.loss[i];
    correct += batch.correct[i];
    entropy += batch.entropy[i];
    part_loss[part] += batch.loss[i];
    part_targets[part] += 1;
    if (!std::isfinite(batch.loss[i]) && first_non_finite.empty())
      first_non_finite = fmt::format("document {} of the micro-batch, position {} of {}", document, batch.label_position[i], length);
  }
  targets += static_cast<double>(batch.labels.size());
}

void Totals::reduce(Group& group) {
  std::vector<double> values{loss, correct, entropy, targets, tokens, aux_loss, aux_batches};
  values.insert(values.end(), part_loss.begin(), part_loss.end());
  values.insert(values.end(), part_targets.begin(), part_targets.end());
  group.all_reduce_host(values, Reduce::sum);
  loss = values[0];
  correct = values[1];
  entropy = values[2];
  targets = values[3];
  tokens = values[4];
  aux_loss = values[5];
  aux_batches = values[6];
  constexpr std::size_t kParts = 7;
  for (std::size_t p = 0; p < kPositionParts; ++p) {
    part_loss[p] = values[kParts + p];
    part_targets[p] = values[kParts + kPositionParts + p];
  }
}

}  // namespace megatoken
