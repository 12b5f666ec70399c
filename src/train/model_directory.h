// Where a model's files are.
#pragma once

#include <string>

namespace megatoken {

// name_or_path: a directory with a config.json, or "organization/name" of a model in the local Hugging Face cache
// (HF_HUB_CACHE, HF_HOME/hub or ~/.cache/huggingface/hub), at a revision (branch, tag or commit) that is there. Nothing is
// downloaded. FileError saying where it was looked for.
std::string find_model_directory(const std::string& name_or_path, const std::string& revision);

}  // namespace megatoken
