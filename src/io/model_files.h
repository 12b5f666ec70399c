// The files of a model directory beside its weights, and putting a finished model in its place.
#pragma once

#include <string>
#include <vector>

namespace megatoken {

// Where a model is built inside output_dir before publish_model moves it up (clean_leftovers knows the name).
inline constexpr const char* kStagingName = ".tmp-model";

// Copies the tokenizer, chat-template and generation files that `from` has into `to`, byte for byte (links are
// followed), and returns their names. FileError: a file that is there can't be read; TrainError: it can't be written.
std::vector<std::string> copy_tokenizer_files(const std::string& from, const std::string& to);

// Moves every file of `staging` into `dir` and removes `staging`. At every moment `dir` holds the old model, no model,
// or the new one, never a mixture: the old weights go first (model.safetensors or the index, then shards), the new
// index or model.safetensors comes last. Both on one file system. TrainError.
void publish_model(const std::string& staging, const std::string& dir);

// What an earlier publish_model(staging, dir) left when it was cut off: finished if it had begun to move files,
// otherwise removed. Nothing happens when `staging` isn't there.
void finish_or_drop_model(const std::string& staging, const std::string& dir);

}  // namespace megatoken
