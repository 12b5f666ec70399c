#include "io/model_files.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.h"
#include "io/file.h"

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
  const std::vector<std::string> fresh = names_in(staging);
  make_directories(dir);
  for (const char* name : {kSingle, kIndex}) remove_file(fs::path(dir) / name);
  for (const std::string& name : names_in(dir))
    if (is_shard(name)) remove_file(fs::path(dir) / name);
  sync_directory(dir);

  const auto move = [&](const std::string& name) {
    const fs::path target = fs::path(dir) / name;
    std::error_code error;
    if (fs::is_directory(target, error)) fs::remove_all(target, error);
    rename_path((fs::path(staging) / name).string(), target.string());
  };
  const auto last = [](const std::string& name) { return name == kSingle || name == kIndex; };
  for (const std::string& name : fresh)
    if (!last(name)) move(name);
  sync_directory(dir);
  for (const std::string& name : fresh)
    if (last(name)) move(name);
  sync_directory(dir);
  std::error_code ignored;
  fs::remove_all(staging, ignored);
}

}  // namespace megatoken
