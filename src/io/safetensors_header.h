// The JSON header of a .safetensors file: parsing and the checks that need no file.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

namespace megatoken {

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // sorted by begin; begin and end count from the first byte after the header
  std::map<std::string, std::string> metadata;
};

// FileError beginning with `path`. data_bytes: how many bytes follow the header in the file.
SafetensorsHeader parse_safetensors_header(std::string_view json, int64 data_bytes, const std::string& path);

}  // namespace megatoken
