// The weights of a Hugging Face model directory: model.safetensors, or shards named by model.safetensors.index.json.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/safetensors.h"

namespace megatoken {

class CheckpointReader {
 public:
  // <dir>/<stem>.safetensors if it is there (as transformers prefers it), else <dir>/<stem>.safetensors.index.json and
  // the files that it names. FileError: no weights (weights in pytorch_model.bin alone are refused by name), any faulty
  // file, an index that names a missing file, a path outside the directory, or a tensor that its file lacks; a tensor
  // in two files. Tensors of a shard that the index doesn't list are there too, as for transformers.
  static CheckpointReader open(const std::string& dir, const std::string& stem = "model");

  const std::string& dir() const { return dir_; }
  std::vector<std::string> names() const;  // in the order of the files and of the bytes in each
  std::optional<TensorInfo> find(std::string_view name) const;
  int64 total_bytes() const;  // of all tensors as stored

  // As SafetensorsFile::read; FileError when there is no such tensor.
  void read(std::string_view name, int64 first, int64 count, DType to, void* out) const;

  // Bytes of tensor data read through this object (one per rank: bytes read per rank).
  int64 bytes_read() const;

 private:
  struct Place {
    std::size_t file;
    std::size_t tensor;
  };
  void add(SafetensorsFile file);
  const Place* place(std::string_view name) const;

  std::string dir_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, Place> by_name_;
};

// The file names of a shard index (<dir>/<stem>.safetensors.index.json) by tensor; FileError as above.
std::vector<std::pair<std::string, std::string>> read_safetensors_index(const std::string& path);

}  // namespace megatoken
