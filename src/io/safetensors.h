// One .safetensors file, validated in full when it is opened and read by slices.
// Format: 8 bytes little-endian header length N, N bytes of JSON {"name": {"dtype", "shape", "data_offsets"}, ...,
// "__metadata__": {text: text}}, then the tensors' bytes, row-major, little-endian, without gap or overlap
// (https://github.com/huggingface/safetensors#format).
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/dtype.h"
#include "io/file.h"

namespace megatoken {

struct TensorInfo {
  std::string name;
  std::string stored_dtype;    // as the file spells it: "BF16", "F8_E4M3"
  std::optional<DType> dtype;  // none: a type of the format that this program doesn't compute with
  std::vector<int64> shape;    // empty: a scalar
  int64 elements = 1;          // product of shape
  std::string file;            // path of the file that holds it
  int64 begin = 0;             // byte range in that file
  int64 end = 0;

  std::string shape_text() const;  // "[2, 3]"
};

// "BF16" and the like for the types written.
std::string_view safetensors_name_of(DType dtype);

class SafetensorsFile {
 public:
  // FileError naming path, tensor and fault: header length out of bounds, malformed JSON, duplicate or unknown keys, an
  // unknown dtype, a negative or overflowing shape, a size that isn't dtype x shape, gaps, overlaps, bytes missing or
  // left over. Opened means: every tensor's bytes are inside the file.
  static SafetensorsFile open(const std::string& path);

  const std::string& path() const { return map_.path(); }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // in the order of their bytes
  const TensorInfo* find(std::string_view name) const;                 // null: not there
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // Elements [first, first + count) of a tensor (row-major) as `to`: f32 or bf16 for f32, f16 and bf16 tensors, or the
  // stored type itself. Reads only those bytes, by pieces whose pages are released again, so that resident memory
  // doesn't grow with the file. Thread-safe. FileError naming the tensor: a type that can't be read as `to`, or a file
  // that has shrunk since it was opened. InternalError: a range outside the tensor.
  void read(const TensorInfo& tensor, int64 first, int64 count, DType to, void* out) const;

  // Bytes of tensor data read through this object.
  int64 bytes_read() const { return bytes_read_->load(); }

 private:
  explicit SafetensorsFile(MappedFile map) : map_(std::move(map)) {}

  MappedFile map_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string, std::size_t> by_name_;
  std::map<std::string, std::string> metadata_;
  std::unique_ptr<std::atomic<int64>> bytes_read_ = std::make_unique<std::atomic<int64>>(0);
};

}  // namespace megatoken
