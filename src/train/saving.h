// Checkpoints and the final model, written by rank 0 from every rank's pieces. All functions are collective.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "train/rank.h"

namespace megatoken {

// What resuming needs beside the tensors.
struct Progress {
  int64 step = 0;
  double num_tokens = 0;
  nlohmann::json sampler;
};

// checkpoint-<step> in output_dir: the model as it would be exported and, unless save_only_model, optimizer state and
// progress. Whole or absent. Then older ones go by save_total_limit.
void save_checkpoint(Rank& rank, const Progress& progress);
// The model, tokenizer and generation files in output_dir itself, loadable by transformers.
void save_final_model(Rank& rank);
// Loads masters, moments and progress from a checkpoint. FileError when it does not belong to this model.
Progress resume(Rank& rank, const std::string& checkpoint);

}  // namespace megatoken
