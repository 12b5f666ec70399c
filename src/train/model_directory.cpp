#include "train/model_directory.h"

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "io/file.h"

namespace megatoken {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

fs::path hub_cache() {
  if (const std::string cache = environment("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = environment("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty()) return fs::path(cache) / "huggingface" / "hub";
  return fs::path(environment("HOME")) / ".cache" / "huggingface" / "hub";
}

std::string trimmed(std::string text) {
  const auto end = text.find_last_not_of(" \r\n\t");
  text.erase(end == std::string::npos ? 0 : end + 1);
  return text;
}

}  // namespace

std::string find_model_directory(const std::string& name_or_path, const std::string& revision) {
  if (fs::is_directory(name_or_path)) {
    if (!fs::exists(fs::path(name_or_path) / "config.json")) 
      throw FileError("{}: has no config.json; a model directory has it beside tokenizer.json and the weights", name_or_path);
    return name_or_path;
  }
  if (name_or_path.find("..") != std::string::npos || name_or_path.starts_with('/'))
    throw FileError("{}: no such model directory", name_or_path);
  std::string folder = "models--" + name_or_path;
  for (auto slash = folder.find('/'); slash != std::string::npos; slash = folder.find('/')) folder.replace(slash, 1, "--");
  const fs::path model = hub_cache() / folder;
  std::string commit = revision;
  if (const fs::path ref = model / "refs" / revision; fs::is_regular_file(ref)) commit = trimmed(read_text_file(ref.string(), 4096));
  const fs::path snapshot = model / "snapshots" / commit;
  if (!commit.empty() && fs::exists(snapshot / "config.json")) return snapshot.string();
  throw FileError("{}: neither a directory nor in the local cache ({}, revision {}); nothing is downloaded", name_or_path,
                  model.string(), revision);
}

}  // namespace megatoken
