#include <filesystem>

#include "base/log.h"
#include "cli/cli.h"
#include "io/file.h"
#include "io/model_files.h"
#include "io/safetensors_writer.h"
#include "io/checkpoint_reader.h"
#include "model/parameters.h"
#include "model/weights.h"

namespace megatoken {
namespace {

constexpr int64 kChunk = int64{1} << 20;  // elements

// Copies the weights tensor by tensor, in the type they are stored in.
void copy_weights(const CheckpointReader& reader, const std::string& dir) {
  std::vector<TensorDeclaration> declared;
  for (const std::string& name : reader.names()) {
    const auto info = reader.find(name);
    if (!info->dtype) throw FileError("{}: tensor {} is {}", info->file, name, info->stored_dtype);
    declared.push_back({name, *info->dtype == DType::bf16 ? DType::bf16 : DType::f32, info->shape});
  }
  SafetensorsWriter writer(dir, declared);
  std::vector<float> values(static_cast<std::size_t>(kChunk));
  for (const TensorDeclaration& tensor : declared) {
    const int64 elements = reader.find(tensor.name)->elements;
    for (int64 at = 0; at < elements; at += kChunk) {
      const int64 count = std::min(kChunk, elements - at);
      reader.read(tensor.name, at, count, tensor.dtype, values.data());
      writer.write(tensor.name, at, count, values.data());
    }
  }
  writer.finish();
}

}  // namespace

int run_export(const Invocation& invocation) {
  const std::string& from = invocation.path;
  ModelSpec spec = ModelSpec::from_directory(from);
  const CheckpointReader reader = CheckpointReader::open(from);
  spec.expert_layout = expert_layout_of(spec, reader);
  check_weights(spec, make_buckets(spec), reader);
  check_writable(invocation.out_dir, "OUT_DIR");
  if (std::filesystem::equivalent(from, invocation.out_dir))
    throw ConfigError("OUT_DIR: {} is the checkpoint itself", invocation.out_dir);
  const std::string staging = invocation.out_dir + "/" + kStagingName;
  std::filesystem::remove_all(staging);
  make_directories(staging);
  copy_weights(reader, staging);
  copy_file_synced(from + "/config.json", staging + "/config.json");
  copy_tokenizer_files(from, staging);
  publish_model(staging, invocation.out_dir);
  log_info("{}: model of {} parameters from {}", invocation.out_dir, count_parameters(spec), from);
  return 0;
}

}  // namespace megatoken
