// Writes tensors as .safetensors into a directory, sharded the way transformers does it.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/dtype.h"
#include "io/file.h"

namespace megatoken {

struct TensorDeclaration {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64> shape;
};

struct SafetensorsWriterOptions {
  std::string stem = "model";             // <stem>.safetensors, or <stem>-00001-of-0000N.safetensors and an index
  int64 max_shard_bytes = 5'000'000'000;  // a larger tensor gets a file of its own
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
  int64 total_parameters = -1;  // for the index's metadata; -1: the sum of all elements
};

// All tensors are declared first, so every byte's place is known: pieces may then come in any order, from any thread.
// Files carry a temporary name until finish(), which syncs and names them, the index last. Without finish() the
// destructor removes them. Errors while writing are TrainError naming the file.
class SafetensorsWriter {
 public:
  // InternalError: two tensors of one name, a negative or overflowing shape. TrainError: no space for the declared
  // bytes (where the file system can tell).
  SafetensorsWriter(std::string dir, std::vector<TensorDeclaration> tensors, SafetensorsWriterOptions options = {});
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;
  ~SafetensorsWriter();

  // Elements [first, first + count) of a declared tensor, in its declared dtype. Every element exactly once.
  // Thread-safe.
  void write(std::string_view name, int64 first, int64 count, const void* data);

  // InternalError naming a tensor that wasn't written in full. Afterwards the files are on the disk.
  void finish();

  int64 total_bytes() const { return total_bytes_; }
  std::vector<std::string> file_names() const;  // final names, the index last

 private:
  struct Slot {
    TensorDeclaration declaration;
    int64 elements = 0;
    int64 bytes = 0;
    std::size_t shard = 0;
    int64 offset = 0;   // of its first byte in the shard's file
    int64 written = 0;  // elements, under mutex_
  };
  struct Shard {
    std::string name;
    std::vector<std::size_t> slots;
    int64 data_bytes = 0;
    OutputFile file;
  };
  void place_tensors();
  void open_shards();
  std::string temporary(const std::string& name) const;
  std::string final_path(const std::string& name) const;
  std::string header_of(const Shard& shard);
  std::string index_json() const;

  std::string dir_;
  SafetensorsWriterOptions options_;
  std::vector<Slot> slots_;
  std::unordered_map<std::string, std::size_t> by_name_;
  std::vector<Shard> shards_;
  int64 total_bytes_ = 0;
  int64 total_elements_ = 0;
  bool finished_ = false;
  std::mutex mutex_;
};

}  // namespace megatoken
