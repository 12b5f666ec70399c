#include "data/files.h"

#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "io/file.h"

namespace megatoken {
namespace {

namespace fs = std::filesystem;

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

std::optional<FileKind> kind_of(const fs::path& path) {
  const std::string extension = lower(path.extension().string());
  if (extension == ".txt") return FileKind::text;
  if (extension == ".jsonl" || extension == ".json") return FileKind::json;
  return std::nullopt;
}

// Why a file of another kind isn't read; empty when it is no data file at all.
std::string refusal(const fs::path& path) {
  const std::string extension = lower(path.extension().string());
  if (extension == ".parquet" || extension == ".arrow" || extension == ".csv" || extension == ".tsv" ||
      extension == ".feather")
    return fmt::format("{} files are not read yet; convert it to .jsonl", extension);
  if (extension == ".gz" || extension == ".zst" || extension == ".zip" || extension == ".bz2" || extension == ".xz" ||
      extension == ".tar")
    return fmt::format("{} files are not unpacked; unpack it first", extension);
  return "";
}

bool is_pattern(const std::string& text) { return text.find_first_of("*?[") != text.npos; }

bool hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

std::vector<fs::path> sorted_entries(const fs::path& dir) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error))
    if (!hidden(at->path())) entries.push_back(at->path());
  if (error) throw FileError("cannot list {}: {}", printable(dir.string(), 4096), error.message());
  std::sort(entries.begin(), entries.end());
  return entries;
}

void walk(const fs::path& dir, int depth, std::vector<fs::path>& files) {
  if (depth > 32) throw FileError("{}: directories nested deeper than 32 levels", printable(dir.string(), 4096));
  for (const fs::path& entry : sorted_entries(dir)) {
    std::error_code ignored;
    if (fs::is_directory(entry, ignored))
      walk(entry, depth + 1, files);
    else if (fs::is_regular_file(entry, ignored) || kind_of(entry))  // a broken link by a data file's name is an error
      files.push_back(entry);
  }
}

// Matches parts[i..] below dir; ** stands for any number of directories.
void match(const fs::path& dir, const std::vector<std::string>& parts, std::size_t i, int depth,
           std::set<fs::path>& found) {
  std::error_code ignored;
  const fs::path here = dir.empty() ? fs::path(".") : dir;
  if (depth > 32 || !fs::is_directory(here, ignored)) return;
  const bool last = i + 1 == parts.size();
  if (parts[i] == "**") {
    if (!last) match(dir, parts, i + 1, depth, found);
    for (const fs::path& entry : sorted_entries(here)) {
      if (fs::is_directory(entry, ignored))
        match(dir / entry.filename(), parts, i, depth + 1, found);
      else if (last)
        found.insert(dir / entry.filename());
    }
    return;
  }
  const auto step = [&](const fs::path& path) {
    if (!last)
      match(path, parts, i + 1, depth + 1, found);
    else if (!fs::is_directory(path, ignored))
      found.insert(path);
  };
  if (!is_pattern(parts[i])) {
    if (fs::exists(fs::symlink_status(dir / parts[i], ignored))) step(dir / parts[i]);
    return;
  }
  for (const fs::path& entry : sorted_entries(here))
    if (::fnmatch(parts[i].c_str(), entry.filename().c_str(), FNM_PERIOD) == 0) step(dir / entry.filename());
}

std::vector<fs::path> expand(const std::string& pattern) {
  const fs::path path(pattern);
  std::vector<std::string> parts;
  for (const fs::path& part : path.relative_path()) parts.push_back(part.string());
  std::set<fs::path> found;
  if (!parts.empty()) match(path.root_path(), parts, 0, 0, found);
  return {found.begin(), found.end()};
}

// The words of datasets' split patterns (datasets/data_files.py).
struct SplitWords {
  std::string_view split;
  std::array<std::string_view, 4> words;
};
constexpr std::array<SplitWords, 3> kSplits{{
    {"train", {"train", "training"}},
    {"validation", {"validation", "valid", "val", "dev"}},
    {"test", {"test", "testing", "eval", "evaluation"}},
}};

std::string split_of(const std::string& path) {
  const std::string text = lower(path);
  const auto letter = [&](std::size_t i) { return i < text.size() && text[i] >= 'a' && text[i] <= 'z'; };
  for (const SplitWords& entry : kSplits)
    for (const std::string_view word : entry.words)
      for (std::size_t at = word.empty() ? text.npos : text.find(word); at != text.npos; at = text.find(word, at + 1))
        if ((at == 0 || !letter(at - 1)) && !letter(at + word.size())) return std::string(entry.split);
  return "";
}

// Files by split, those of none under "". As for datasets, directories' names decide where one of them names a split,
// files' names otherwise.
std::map<std::string, std::vector<fs::path>> by_split(const std::vector<fs::path>& files, const fs::path& root) {
  std::map<std::string, std::vector<fs::path>> by_directory, by_name;
  for (const fs::path& path : files) {
    by_directory[split_of(path.lexically_relative(root).parent_path().string())].push_back(path);
    by_name[split_of(path.filename().string())].push_back(path);
  }
  const auto names_none = [](const auto& map) { return map.size() == 1 && map.contains(""); };
  return names_none(by_directory) ? by_name : by_directory;
}

// Files of one kind, or an error.
DataFiles of_one_kind(const std::vector<fs::path>& files, const std::string& name) {
  DataFiles result;
  std::optional<FileKind> kind;
  for (const fs::path& path : files) {
    const auto this_kind = kind_of(path);
    if (!this_kind) {
      if (const std::string why = refusal(path); !why.empty())
        throw FileError("{}: {}", printable(path.string(), 4096), why);
      result.ignored.push_back(path.string());
      continue;
    }
    if (kind && *kind != *this_kind)
      throw FileError(
          "{}: text and JSON files in one dataset ({} and {}); name the ones meant by a pattern such as *.jsonl",
          printable(name, 4096), printable(result.paths.back()), printable(path.string()));
    kind = this_kind;
    result.paths.push_back(path.string());
  }
  if (!kind) throw FileError("{}: no .txt, .jsonl or .json file", printable(name, 4096));
  result.kind = *kind;
  return result;
}

DataFiles in_directory(const std::string& name, const std::string& split) {
  std::vector<fs::path> files;
  walk(name, 0, files);
  std::vector<fs::path> data, ignored;
  for (const fs::path& path : files) (kind_of(path) || !refusal(path).empty() ? data : ignored).push_back(path);
  if (data.empty()) throw FileError("{}: no .txt, .jsonl or .json file in this directory", printable(name, 4096));
  std::map<std::string, std::vector<fs::path>> splits = by_split(data, name);
  std::vector<std::string> named;
  if (const auto rest = splits.find(""); rest != splits.end()) {
    // Where no file names a split all are "train"; beside files that do, the others belong to none.
    std::vector<fs::path> unnamed = std::move(rest->second);
    splits.erase(rest);
    if (splits.empty())
      splits["train"] = std::move(unnamed);
    else
      ignored.insert(ignored.end(), unnamed.begin(), unnamed.end());
  }
  for (const auto& [key, paths] : splits) named.push_back(key);
  const auto found = splits.find(split);
  if (found == splits.end()) {
    throw FileError("{}: no split \"{}\"; there {} {}", printable(name, 4096), printable(split),
                    named.size() == 1 ? "is" : "are", fmt::join(named, ", "));
  }
  DataFiles result = of_one_kind(found->second, name);
  for (const fs::path& path : ignored) result.ignored.push_back(path.string());
  result.splits = std::move(named);
  return result;
}

DataFiles listed(const std::string& name, const std::vector<std::string>& data_files) {
  const FileKind kind = name == "text" ? FileKind::text : FileKind::json;
  if (data_files.empty()) throw ConfigError("dataset_name: {} needs data_files: the files to read", name);
  DataFiles result;
  result.kind = kind;
  for (const std::string& entry : data_files) {
    std::error_code ignored;
    if (fs::is_directory(entry, ignored))
      throw FileError("data_files: {} is a directory; name files or a pattern", printable(entry, 4096));
    const bool literal = !is_pattern(entry) || fs::exists(entry, ignored);
    const std::vector<fs::path> paths = literal ? std::vector<fs::path>{entry} : expand(entry);
    if (paths.empty()) throw FileError("data_files: no file matches {}", printable(entry, 4096));
    for (const fs::path& path : paths) {
      if (const std::string why = refusal(path); !why.empty())
        throw FileError("{}: {}", printable(path.string(), 4096), why);
      result.paths.push_back(path.string());
    }
  }
  return result;
}

}  // namespace

DataFiles find_data_files(const std::string& name, const std::vector<std::string>& data_files,
                          const std::string& split) {
  std::error_code ignored;
  const bool there = fs::exists(name, ignored);
  const auto train_only = [&] {
    if (split != "train")
      throw FileError(
          "{}: no split \"{}\"; files given by name are the split train (eval_dataset names files to evaluate on)",
          printable(name, 4096), printable(split));
  };
  if (name == "text" || name == "json") {
    train_only();
    return listed(name, data_files);
  }
  if (name == "parquet")
    throw FileError("dataset_name: parquet: .parquet files are not read yet; convert them to .jsonl");
  if (!data_files.empty())
    throw ConfigError("data_files go with dataset_name text or json; dataset_name is {}", printable(name, 4096));
  if (there && fs::is_directory(name, ignored)) return in_directory(name, split);
  train_only();
  if (there) {
    const auto kind = kind_of(name);
    const std::string why = refusal(name);
    if (!why.empty()) throw FileError("{}: {}", printable(name, 4096), why);
    if (!kind)
      throw FileError(
          "{}: neither .txt, .jsonl nor .json; for another name use dataset_name text or json with data_files",
          printable(name, 4096));
    return {*kind, {name}, {}, {}};
  }
  if (is_pattern(name)) {
    const std::vector<fs::path> found = expand(name);
    if (found.empty()) throw FileError("dataset_name: no file matches {}", printable(name, 4096));
    return of_one_kind(found, name);
  }
  throw FileError("dataset_name: {}: no such file or directory; datasets are read from this machine, never downloaded",
                  printable(name, 4096));
}

}  // namespace megatoken
