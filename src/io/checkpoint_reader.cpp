#include "io/checkpoint_reader.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "io/file.h"
#include "io/json.h"

namespace megatoken {
namespace {

namespace fs = std::filesystem;

bool present(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> read_safetensors_index(const std::string& path) {
  const std::string where = printable(path, 4096);
  const nlohmann::json index = read_json_file(path);
  const nlohmann::json& map = require(index, "weight_map", nlohmann::json::value_t::object, where);
  if (map.empty()) throw FileError("{}: \"weight_map\" names no tensor", where);
  std::vector<std::pair<std::string, std::string>> entries;
  entries.reserve(map.size());
  for (const auto& [tensor, file] : map.items()) {
    if (!file.is_string())
      throw FileError("{}: \"weight_map\": the file of tensor \"{}\" is not a text", where, printable(tensor));
    const auto& name = file.get_ref<const std::string&>();
    if (name.empty() || name == "." || name == ".." || name.find('/') != name.npos || name.find('\0') != name.npos)
      throw FileError("{}: tensor \"{}\" is said to be in \"{}\", which is not the name of a file in that directory",
                      where, printable(tensor), printable(name));
    entries.emplace_back(tensor, name);
  }
  return entries;
}

CheckpointReader CheckpointReader::open(const std::string& dir, const std::string& stem) {
  const std::string where = printable(dir, 4096);
  const fs::path root(dir);
  std::error_code error;
  if (!fs::is_directory(root, error))
    throw FileError("{}: {}", where, present(root) ? "not a directory" : "no such directory");

  CheckpointReader reader;
  reader.dir_ = dir;
  const fs::path single = root / (stem + ".safetensors");
  const fs::path index = root / (stem + ".safetensors.index.json");
  if (present(single)) {
    reader.add(SafetensorsFile::open(single.string()));
    return reader;
  }
  if (!present(index)) {
    if (present(root / "pytorch_model.bin") || present(root / "pytorch_model.bin.index.json"))
      throw FileError(
          "{}: the weights are in pytorch_model.bin only, a pickle, which is not read; save the model with "
          "safetensors",
          where);
    throw FileError(
        "{}: no {}.safetensors and no {}.safetensors.index.json (init_from_config: true trains from random weights)",
        where, stem, stem);
  }

  const auto entries = read_safetensors_index(index.string());
  std::set<std::string> files;
  for (const auto& [tensor, file] : entries) {
    if (files.insert(file).second && !present(root / file))
      throw FileError("{}: names {}, which is missing", printable(index.string(), 4096), printable(file));
  }
  for (const std::string& file : files) reader.add(SafetensorsFile::open((root / file).string()));
  for (const auto& [tensor, file] : entries) {
    const Place* found = reader.place(tensor);
    if (!found || fs::path(reader.files_[found->file].path()).filename() != file)
      throw FileError("{}: tensor \"{}\" is not in {}, where {} says it is", where, printable(tensor), printable(file),
                      index.filename().string());
  }
  return reader;
}

void CheckpointReader::add(SafetensorsFile file) {
  const std::size_t f = files_.size();
  for (std::size_t t = 0; t < file.tensors().size(); ++t) {
    const std::string& name = file.tensors()[t].name;
    const auto [at, fresh] = by_name_.emplace(name, Place{f, t});
    if (!fresh)
      throw FileError("{}: tensor \"{}\" is in {} too", printable(file.path(), 4096), printable(name),
                      printable(files_[at->second.file].path(), 4096));
  }
  files_.push_back(std::move(file));
}

const CheckpointReader::Place* CheckpointReader::place(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : &found->second;
}

std::vector<std::string> CheckpointReader::names() const {
  std::vector<std::string> names;
  names.reserve(by_name_.size());
  for (const SafetensorsFile& file : files_)
    for (const TensorInfo& tensor : file.tensors()) names.push_back(tensor.name);
  return names;
}

std::optional<TensorInfo> CheckpointReader::find(std::string_view name) const {
  const Place* found = place(name);
  if (!found) return std::nullopt;
  return files_[found->file].tensors()[found->tensor];
}

int64 CheckpointReader::total_bytes() const {
  int64 total = 0;
  for (const SafetensorsFile& file : files_)
    for (const TensorInfo& tensor : file.tensors()) total += tensor.end - tensor.begin;
  return total;
}

void CheckpointReader::read(std::string_view name, int64 first, int64 count, DType to, void* out) const {
  const Place* found = place(name);
  if (!found) throw FileError("{}: tensor \"{}\" is missing", printable(dir_, 4096), printable(name));
  const SafetensorsFile& file = files_[found->file];
  file.read(file.tensors()[found->tensor], first, count, to, out);
}

int64 CheckpointReader::bytes_read() const {
  int64 total = 0;
  for (const SafetensorsFile& file : files_) total += file.bytes_read();
  return total;
}

}  // namespace megatoken
