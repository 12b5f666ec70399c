#include "io/safetensors_writer.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/safetensors.h"

namespace megatoken {
namespace {

namespace fs = std::filesystem;

std::string json_text(const std::string& text) { return nlohmann::json(text).dump(-1, ' ', true); }

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::string dir, std::vector<TensorDeclaration> tensors,
                                     SafetensorsWriterOptions options)
    : dir_(std::move(dir)), options_(std::move(options)) {
  slots_.reserve(tensors.size());
  for (TensorDeclaration& declaration : tensors) {
    Slot slot;
    slot.elements = 1;
    bool overflow = false;
    for (const int64 size : declaration.shape)
      overflow |= size < 0 || __builtin_mul_overflow(slot.elements, size, &slot.elements);
    overflow |= __builtin_mul_overflow(slot.elements, size_of(declaration.dtype), &slot.bytes);
    check(!overflow, "tensor {} can't be written: impossible shape", declaration.name);
    check(by_name_.emplace(declaration.name, slots_.size()).second, "tensor {} is declared twice", declaration.name);
    slot.declaration = std::move(declaration);
    total_bytes_ += slot.bytes;
    total_elements_ += slot.elements;
    slots_.push_back(std::move(slot));
  }
  place_tensors();
  try {
    open_shards();
  } catch (...) {
    for (const Shard& shard : shards_) fs::remove(temporary(shard.name));
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (finished_) return;
  std::error_code ignored;
  for (const Shard& shard : shards_) fs::remove(temporary(shard.name), ignored);
}

// huggingface_hub's split_state_dict_into_shards_factory: in order, a shard is closed when the next tensor would pass
// the limit; a tensor above the limit stands alone and doesn't close the current shard.
void SafetensorsWriter::place_tensors() {
  std::vector<std::vector<std::size_t>> groups;
  std::vector<std::size_t> current;
  int64 current_bytes = 0;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const int64 bytes = slots_[i].bytes;
    if (bytes > options_.max_shard_bytes) {
      groups.push_back({i});
      continue;
    }
    if (current_bytes + bytes > options_.max_shard_bytes) {
      groups.push_back(std::move(current));
      current.clear();
      current_bytes = 0;
    }
    current.push_back(i);
    current_bytes += bytes;
  }
  if (!current.empty() || groups.empty()) groups.push_back(std::move(current));

  for (std::size_t s = 0; s < groups.size(); ++s) {
    const std::string suffix = groups.size() == 1 ? "" : fmt::format("-{:05d}-of-{:05d}", s + 1, groups.size());
    int64 data_bytes = 0;
    for (const std::size_t i : groups[s]) {
      slots_[i].shard = s;
      slots_[i].offset = data_bytes;
      data_bytes += slots_[i].bytes;
    }
    shards_.push_back(Shard{options_.stem + suffix + ".safetensors", std::move(groups[s]), data_bytes, {}});
  }
}

std::string SafetensorsWriter::header_of(const Shard& shard) {
  std::string header = "{";
  if (!options_.metadata.empty()) header += "\"__metadata__\":" + nlohmann::json(options_.metadata).dump(-1, ' ', true);
  for (const std::size_t i : shard.slots) {
    const Slot& slot = slots_[i];
    if (header.size() > 1) header += ',';
    header += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          json_text(slot.declaration.name), safetensors_name_of(slot.declaration.dtype),
                          fmt::join(slot.declaration.shape, ","), slot.offset, slot.offset + slot.bytes);
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');  // the data begins at a multiple of 8
  return header;
}

void SafetensorsWriter::open_shards() {
  for (Shard& shard : shards_) {
    const std::string header = header_of(shard);
    const auto length = static_cast<std::uint64_t>(header.size());
    const auto data_at = static_cast<int64>(sizeof length + header.size());
    shard.file = OutputFile::create(temporary(shard.name));
    shard.file.reserve(data_at + shard.data_bytes);
    shard.file.write_at(0, &length, sizeof length);
    shard.file.write_at(sizeof length, header.data(), static_cast<int64>(header.size()));
    for (const std::size_t i : shard.slots) slots_[i].offset += data_at;
  }
}

void SafetensorsWriter::write(std::string_view name, int64 first, int64 count, const void* data) {
  const auto found = by_name_.find(std::string(name));
  check(found != by_name_.end(), "tensor {} was not declared", name);
  check(!finished_, "tensor {} written after finish()", name);
  Slot& slot = slots_[found->second];
  check(first >= 0 && count >= 0 && first <= slot.elements - count, "elements [{}, +{}) of tensor {}, which has {}",
        first, count, name, slot.elements);
  const int64 element = size_of(slot.declaration.dtype);
  shards_[slot.shard].file.write_at(slot.offset + first * element, data, count * element);
  const std::lock_guard lock(mutex_);
  slot.written += count;
}

std::string SafetensorsWriter::index_json() const {
  nlohmann::json index;
  index["metadata"] = {
      {"total_parameters", options_.total_parameters >= 0 ? options_.total_parameters : total_elements_},
      {"total_size", total_bytes_}};
  nlohmann::json& map = index["weight_map"] = nlohmann::json::object();
  for (const Slot& slot : slots_) map[slot.declaration.name] = shards_[slot.shard].name;
  return index.dump(2, ' ', true) + "\n";
}

void SafetensorsWriter::finish() {
  for (const Slot& slot : slots_)
    check(slot.written == slot.elements, "tensor {}: {} of {} elements written", slot.declaration.name, slot.written,
          slot.elements);
  for (Shard& shard : shards_) {
    shard.file.sync();
    shard.file.close();
  }
  for (const Shard& shard : shards_) rename_path(temporary(shard.name), final_path(shard.name));
  finished_ = true;
  if (shards_.size() > 1)
    write_file_atomic(final_path(options_.stem + ".safetensors.index.json"), index_json());
  else
    sync_directory(dir_);
}

std::vector<std::string> SafetensorsWriter::file_names() const {
  std::vector<std::string> names;
  for (const Shard& shard : shards_) names.push_back(shard.name);
  if (shards_.size() > 1) names.push_back(options_.stem + ".safetensors.index.json");
  return names;
}

std::string SafetensorsWriter::temporary(const std::string& name) const {
  return (fs::path(dir_) / ("." + name + ".tmp-0-0")).string();
}

std::string SafetensorsWriter::final_path(const std::string& name) const { return (fs::path(dir_) / name).string(); }

}  // namespace megatoken
