#include "io/model_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "io/file.h"
#include "io/json.h"

namespace megatoken {
namespace {

namespace fs = std::filesystem;

// What transformers' tokenizers, processors and GenerationConfig save.
constexpr std::array kTokenizerFiles{
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "processor_config.json",
    "preprocessor_config.json",
};
constexpr const char* kTemplateDir = "additional_chat_templates";

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

bool is_shard(const std::string& name) { return name.starts_with("model-") && name.ends_with(".safetensors"); }

void remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) throw TrainError("cannot remove {}: {}", path.string(), error.message());
}

std::vector<std::string> names_in(const std::string& dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  if (error) throw TrainError("cannot list {}: {}", dir, error.message());
  std::sort(names.begin(), names.end());
  return names;
}

// What publish_model was asked to move, written into the staging directory before the first move.
constexpr const char* kListName = ".publish.json";

// Moves those of `names` that are still in staging; the others were moved before.
void move_model(const std::string& staging, const std::string& dir, const std::vector<std::string>& names) {
  std::error_code error;
  std::vector<std::string> left;
  std::set<std::string> moved;
  for (const std::string& name : names) {
    if (fs::exists(fs::path(staging) / name, error))
      left.push_back(name);
    else
      moved.insert(name);
  }
  const auto last = [](const std::string& name) { return name == kSingle || name == kIndex; };
  for (const char* name : {kSingle, kIndex})
    if (!moved.contains(name)) remove_file(fs::path(dir) / name);
  for (const std::string& name : names_in(dir))
    if (is_shard(name) && !moved.contains(name)) remove_file(fs::path(dir) / name);
  sync_directory(dir);

  const auto move = [&](const std::string& name) {
    const fs::path target = fs::path(dir) / name;
    if (fs::is_directory(target, error)) fs::remove_all(target, error);
    rename_path((fs::path(staging) / name).string(), target.string());
  };
  for (const std::string& name : left)
    if (!last(name)) move(name);
  sync_directory(dir);
  for (const std::string& name : left)
    if (last(name)) move(name);
  sync_directory(dir);
  fs::remove_all(staging, error);
}

}  // namespace

std::vector<std::string> copy_tokenizer_files(const std::string& from, const std::string& to) {
  std::vector<std::string> copied;
  std::error_code error;
  const auto copy = [&](const std::string& name) {
    copy_file_synced((fs::path(from) / name).string(), (fs::path(to) / name).string());
    copied.push_back(name);
  };
  for (const char* name : kTokenizerFiles)
    if (fs::exists(fs::path(from) / name, error)) copy(name);
  if (fs::is_directory(fs::path(from) / kTemplateDir, error)) {
    make_directories((fs::path(to) / kTemplateDir).string());
    for (const std::string& name : names_in((fs::path(from) / kTemplateDir).string()))
      if (name.ends_with(".jinja")) copy(fmt::format("{}/{}", kTemplateDir, name));
  }
  return copied;
}

void publish_model(const std::string& staging, const std::string& dir) {
  make_directories(dir);
  // From here on the new model is complete, and a publish that is cut off can be finished.
  const nlohmann::json names = names_in(staging);
  write_file_atomic((fs::path(staging) / kListName).string(), names.dump() + "\n");
  move_model(staging, dir, names);
}

void finish_or_drop_model(const std::string& staging, const std::string& dir) {
  std::error_code error;
  const fs::path list = fs::path(staging) / kListName;
  if (fs::exists(list, error)) {
    const std::string where = list.string();
    const nlohmann::json names = read_json_file(where);
    if (!names.is_array() || !std::all_of(names.begin(), names.end(), [](const auto& n) { return n.is_string(); }))
      throw FileError("{}: not a list of names; remove {} to go on without that model", where, staging);
    move_model(staging, dir, names);
    return;
  }
  fs::remove_all(staging, error);
  if (error) throw TrainError("cannot remove {}: {}", staging, error.message());
}

}  // namespace megatoken
