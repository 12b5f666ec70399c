#include "io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "io/convert.h"
#include "io/safetensors_header.h"

namespace megatoken {
namespace {

static_assert(std::endian::native == std::endian::little, "tensor bytes are copied as they lie in the file");

// The format's own limit on a header (safetensors' MAX_HEADER_SIZE).
constexpr int64 kMaxHeaderBytes = 100'000'000;

// Bytes brought in, converted and released at a time: large enough for the disk, small enough to forget.
constexpr int64 kPieceBytes = int64{4} << 20;

}  // namespace

std::string TensorInfo::shape_text() const { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string_view safetensors_name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "F32";
    case DType::bf16:
      return "BF16";
    case DType::f16:
      return "F16";
    case DType::f64:
      return "F64";
    case DType::i64:
      return "I64";
    case DType::i32:
      return "I32";
    case DType::u16:
      return "U16";
    case DType::u8:
      return "U8";
  }
  throw InternalError("no safetensors name for dtype {}", static_cast<int>(dtype));
}

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  SafetensorsFile file(MappedFile::open(path));
  const std::string where = printable(path, 4096);
  const MappedFile& map = file.map_;
  if (map.size() < 8) throw FileError("{}: truncated: {} bytes are too few for a safetensors file", where, map.size());
  map.fetch(0, 8);
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, map.data(), sizeof header_bytes);
  if (map.text().starts_with("version https://git-lfs"))
    throw FileError("{}: a Git LFS pointer, not the weights; fetch them with `git lfs pull`", where);
  if (header_bytes > static_cast<std::uint64_t>(kMaxHeaderBytes))
    throw FileError("{}: header length {} is beyond the format's {}; not a safetensors file", where, header_bytes,
                    kMaxHeaderBytes);
  const auto length = static_cast<int64>(header_bytes);
  if (length > map.size() - 8)
    throw FileError("{}: truncated: the header has {} bytes, the file {}", where, length, map.size());

  map.fetch(8, length);
  SafetensorsHeader header =
      parse_safetensors_header(map.text().substr(8, header_bytes), map.size() - 8 - length, where);
  map.release(0, 8 + length);
  file.tensors_ = std::move(header.tensors);
  file.metadata_ = std::move(header.metadata);
  for (std::size_t i = 0; i < file.tensors_.size(); ++i) {
    TensorInfo& tensor = file.tensors_[i];
    tensor.file = path;
    tensor.begin += 8 + length;
    tensor.end += 8 + length;
    file.by_name_.emplace(tensor.name, i);
  }
  return file;
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

void SafetensorsFile::read(const TensorInfo& tensor, int64 first, int64 count, DType to, void* out) const {
  check(tensor.file == path(), "tensor {} lies in {}, not in {}", tensor.name, tensor.file, path());
  check(first >= 0 && count >= 0 && first <= tensor.elements - count, "elements [{}, +{}) of tensor {} {}", first,
        count, tensor.name, tensor.shape_text());
  if (!tensor.dtype || !convertible(*tensor.dtype, to))
    throw FileError("{}: tensor \"{}\" is stored as {}, which can't be read as {}", printable(path(), 4096),
                    printable(tensor.name), tensor.stored_dtype, name_of(to));
  const int64 stored = size_of(*tensor.dtype);
  const int64 piece = kPieceBytes / stored;
  auto* target = static_cast<std::byte*>(out);
  for (int64 done = 0; done < count; done += piece) {
    const int64 n = std::min(piece, count - done);
    const int64 offset = tensor.begin + (first + done) * stored;
    map_.fetch(offset, n * stored);
    convert_elements(*tensor.dtype, map_.data() + offset, to, target + done * size_of(to), n);
    map_.release(offset, n * stored);
  }
  bytes_read_->fetch_add(count * stored);
}

}  // namespace megatoken
