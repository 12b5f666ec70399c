#include "data/token_cache.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "data/digest.h"
#include "data/files.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "io/safetensors_writer.h"

namespace megatoken {
namespace {

namespace fs = std::filesystem;

// Part of every key: to be raised whenever the same files and settings give other rows, or the entries another form.
constexpr int64 kCacheVersion = 2;

// Tensors of an entry. Labels of rows whose labels aren't their ids from some token on lie in kLabels, one row behind
// the other; such rows have first_label -1.
constexpr const char* kIds = "ids";
constexpr const char* kLengths = "lengths";
constexpr const char* kFirstLabels = "first_labels";
constexpr const char* kLabels = "labels";

constexpr int64 kPiece = int64{1} << 20;  // elements hashed or read at a time

// Hash of what decides the rows; none where the files are too small to be worth it.
std::optional<std::string> key_of(const DatasetSpec& spec, const TextEncoder& encoder, const PrepareOptions& options) {
  const DataFiles files = find_data_files(spec.name, spec.data_files, spec.split);
  Digest digest;
  digest.add(kCacheVersion);
  digest.add(encoder.identity);
  digest.add(encoder.eos_token);
  digest.add(static_cast<int64>(files.kind));
  digest.add(static_cast<int64>(spec.unit));
  digest.add(spec.text_field);
  digest.add(options.max_length.value_or(-1));
  digest.add(static_cast<int64>(options.max_length_given));
  digest.add(static_cast<int64>(options.long_rows));
  digest.add(options.completion_only_loss ? static_cast<int64>(*options.completion_only_loss) : -1);
  digest.add(options.vocab_size);
  int64 bytes = 0;
  for (const std::string& path : files.paths) {
    const MappedFile file = MappedFile::open(path);
    bytes += file.size();
    digest.add(file.size());
    for (int64 at = 0; at < file.size(); at += kPiece) {
      const int64 count = std::min(kPiece, file.size() - at);
      file.fetch(at, count);
      digest.add_bytes(file.data() + at, count);
      file.release(at, count);
    }
  }
  if (bytes < kCacheFromBytes) return std::nullopt;
  return digest.hex();
}

// A tensor of int32 or int64 read from front to back in spans of any length.
template <typename T>
class Stream {
 public:
  Stream(const SafetensorsFile& file, const char* name, DType dtype) : file_(file), dtype_(dtype) {
    tensor_ = file.find(name);
    if (!tensor_ || tensor_->dtype != dtype || tensor_->shape.size() != 1)
      throw FileError("{}: no {}", file.path(), name);
  }
  int64 size() const { return tensor_->elements; }
  std::span<const T> take(int64 count) {
    if (count < 0 || count > size() - position_) throw FileError("{}: {} too short", file_.path(), tensor_->name);
    if (position_ < begin_ || position_ + count > begin_ + static_cast<int64>(buffer_.size())) {
      begin_ = position_;
      buffer_.resize(static_cast<std::size_t>(std::min(std::max(count, kPiece), size() - position_)));
      file_.read(*tensor_, begin_, static_cast<int64>(buffer_.size()), dtype_, buffer_.data());
    }
    const auto part = std::span<const T>(buffer_).subspan(static_cast<std::size_t>(position_ - begin_),
                                                          static_cast<std::size_t>(count));
    position_ += count;
    return part;
  }

 private:
  const SafetensorsFile& file_;
  DType dtype_;
  const TensorInfo* tensor_;
  int64 position_ = 0, begin_ = 0;
  std::vector<T> buffer_;
};

// Of everything that an entry gives back.
std::string seal(const PreparedDataset& dataset, const std::string& counts) {
  Digest digest;
  digest.add(static_cast<int64>(dataset.fingerprint()));
  digest.add(counts);
  return digest.hex();
}

// The entry at path; FileError when anything about it is wrong.
PreparedDataset load(const std::string& path, PrepareCounts& counts) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const auto metadata = [&](const char* key) -> const std::string& {
    const auto found = file.metadata().find(key);
    if (found == file.metadata().end()) throw FileError("{}: no {}", path, key);
    return found->second;
  };
  Stream<std::int32_t> ids(file, kIds, DType::i32), labels(file, kLabels, DType::i32);
  Stream<std::int64_t> lengths(file, kLengths, DType::i64), first_labels(file, kFirstLabels, DType::i64);
  if (lengths.size() != first_labels.size()) throw FileError("{}: row tables differ", path);
  PreparedDataset dataset;
  for (int64 row = 0; row < lengths.size(); ++row) {
    const int64 length = lengths.take(1)[0], first = first_labels.take(1)[0];
    const auto row_ids = ids.take(length);
    if (first < 0)
      dataset.add(row_ids, labels.take(length));
    else
      dataset.add(row_ids, first);
  }
  if (dataset.rows() == 0 || seal(dataset, metadata("counts")) != metadata("seal"))
    throw FileError("{}: content and seal differ", path);
  counts = counts_from_json(parse_json(metadata("counts"), path), path);
  return dataset;
}

// Removes directories of writers that were killed; live ones are younger.
void remove_stale(const fs::path& dir) {
  std::error_code error;
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (at->path().filename().string().starts_with(".tmp-") &&
        fs::file_time_type::clock::now() - fs::last_write_time(at->path(), ignored) > std::chrono::hours(24) &&
        !ignored)
      fs::remove_all(at->path(), ignored);
  }
}

void store(const PreparedDataset& dataset, const PrepareCounts& counts, const fs::path& path) {
  int64 labels = 0;
  for (int64 row = 0; row < dataset.rows(); ++row)
    if (!dataset.first_label(row)) labels += dataset.length(row);
  const int64 bytes = 4 * (dataset.tokens() + labels) + 16 * dataset.rows();
  const fs::path dir = path.parent_path();
  make_directories(dir.string());
  remove_stale(dir);
  std::error_code error;
  if (const auto space = fs::space(dir, error); error || static_cast<int64>(space.available) / 10 < bytes) return;

  static std::atomic<int64> counter = 0;
  const fs::path temporary = dir / fmt::format(".tmp-{}-{}", static_cast<int64>(::getpid()), ++counter);
  make_directories(temporary.string());
  struct Remover {
    const fs::path& path;
    ~Remover() {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
  } const remover{temporary};

  const std::string counts_text = counts_to_json(counts).dump();
  SafetensorsWriter writer(temporary.string(),
                           {{kIds, DType::i32, {dataset.tokens()}},
                            {kLabels, DType::i32, {labels}},
                            {kLengths, DType::i64, {dataset.rows()}},
                            {kFirstLabels, DType::i64, {dataset.rows()}}},
                           {.stem = "entry",
                            .max_shard_bytes = bytes + 1,
                            .metadata = {{"counts", counts_text}, {"seal", seal(dataset, counts_text)}}});
  int64 id_at = 0, label_at = 0;
  std::vector<std::int64_t> lengths, first_labels;
  std::vector<std::int32_t> row_labels;
  for (int64 row = 0; row < dataset.rows(); ++row) {
    const int64 length = dataset.length(row);
    lengths.push_back(length);
    first_labels.push_back(dataset.first_label(row).value_or(-1));
    writer.write(kIds, id_at, length, dataset.ids(row).data());
    id_at += length;
    if (first_labels.back() >= 0) continue;
    row_labels.clear();
    for (int64 i = 0; i < length; ++i) row_labels.push_back(dataset.label(row, i));
    writer.write(kLabels, label_at, length, row_labels.data());
    label_at += length;
  }
  writer.write(kLengths, 0, dataset.rows(), lengths.data());
  writer.write(kFirstLabels, 0, dataset.rows(), first_labels.data());
  writer.finish();
  rename_path((temporary / "entry.safetensors").string(), path.string());
}

}  // namespace

std::string default_cache_dir() {
  if (const char* dir = std::getenv("MEGATOKEN_CACHE")) return dir;
  const char* home = std::getenv("HOME");
  return home && *home ? (fs::path(home) / ".cache" / "megatoken").string() : "";
}

PreparedDataset prepare_dataset_cached(const DatasetSpec& spec, const TextEncoder& encoder,
                                       const PrepareOptions& options, PrepareCounts& counts,
                                       const std::string& cache_dir) {
  std::optional<std::string> key;
  if (!cache_dir.empty() && !encoder.identity.empty()) key = key_of(spec, encoder, options);
  if (!key) return prepare_dataset(spec, encoder, options, counts);

  const fs::path path = fs::path(cache_dir) / "datasets" / (*key + ".safetensors");
  std::error_code ignored;
  if (fs::exists(path, ignored)) {
    try {
      return load(path.string(), counts);
    } catch (const FileError& error) {
      log_warning("{}; this cached dataset is made anew", error.what());
    }
  }
  PreparedDataset dataset = prepare_dataset(spec, encoder, options, counts);
  try {
    store(dataset, counts, path);
  } catch (const TrainError& error) {
    log_warning("the prepared dataset is not cached: {}", error.what());
  }
  return dataset;
}

}  // namespace megatoken
