#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "cli/cli.h"
#include "data/reader.h"
#include "io/checkpoint_dir.h"
#include "io/checkpoint_reader.h"
#include "io/file.h"
#include "spec/model_spec.h"
#include "text/tokenizer.h"
#include "train/model_directory.h"

namespace megatoken {
namespace {

namespace fs = std::filesystem;

std::string bytes_text(int64 bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

void print_model(const ModelSpec& m) {
  log_info("model       {}: {} layers, hidden {}, MLP {}, vocabulary {}", m.model_type, m.num_layers, m.hidden_size,
           m.intermediate_size, m.vocab_size);
  if (const ExpertSpec& e = m.experts; e.count > 0)
    log_info("experts     {} of {} in {} of {} layers, {} a token{}{}", e.count, e.intermediate_size, m.sparse_layers(),
             m.num_layers, e.per_token, e.normalize ? ", weights normalised" : "",
             e.shared_intermediate_size > 0 ? fmt::format(", a shared expert of {}", e.shared_intermediate_size) : "");
  log_info("attention   {} query heads, {} key-value heads, head dim {}{}{}{}", m.num_heads, m.num_kv_heads, m.head_dim,
           m.qk_norm ? ", q/k norm" : "", m.qkv_bias ? ", q/k/v bias" : "", m.o_bias ? ", output bias" : "");
  log_info("rope        {}, positions {}", describe(m.rope), m.max_position_embeddings);
  const int64 parameters = count_parameters(m);
  const int64 active = count_active_parameters(m);
  log_info("parameters  {} ({:.2f} billion{}{})", parameters, static_cast<double>(parameters) * 1e-9,
           active == parameters ? "" : fmt::format(", {:.2f} of them for a token", static_cast<double>(active) * 1e-9),
           m.tie_word_embeddings ? ", embeddings tied" : "");
}

// "model.layers.17.mlp.up_proj.weight" -> "model.layers.*.mlp.up_proj.weight"
std::string without_numbers(const std::string& name) {
  std::string result;
  std::size_t begin = 0;
  while (begin <= name.size()) {
    const auto end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    result += (begin > 0 ? "." : "") + (number ? std::string("*") : part);
    begin = end + 1;
  }
  return result;
}

struct TensorGroup {
  int64 count = 0, elements = 0, bytes = 0;
};

// Tensors of one name pattern, shape and type in one line.
void print_tensors(const std::vector<TensorInfo>& tensors) {
  std::vector<std::string> order;
  std::map<std::string, TensorGroup> groups;
  std::map<std::string, int64> types;
  TensorGroup all;
  for (const TensorInfo& tensor : tensors) {
    const std::string key =
        fmt::format("{} {} {}", printable(without_numbers(tensor.name), 100), tensor.shape_text(), tensor.stored_dtype);
    TensorGroup& group = groups[key];
    if (group.count == 0) order.push_back(key);
    for (TensorGroup* g : {&group, &all}) {
      ++g->count;
      g->elements += tensor.elements;
      g->bytes += tensor.end - tensor.begin;
    }
    types[tensor.stored_dtype] += tensor.elements;
  }
  std::string type_text;
  for (const auto& [type, elements] : types)
    type_text += fmt::format("{}{} {}", type_text.empty() ? "" : ", ", elements, type);
  log_info("tensors     {} of {} elements, {} ({})", all.count, all.elements, bytes_text(all.bytes), type_text);
  for (const std::string& key : order)
    log_info("  {}{}", key, groups[key].count > 1 ? fmt::format("  x{}", groups[key].count) : "");
}

void print_weights(const std::string& dir) {
  bool any = false;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir))
    any |= entry.path().filename().string().starts_with("model") &&
           entry.path().string().find(".safetensors") != std::string::npos;
  if (!any) {
    log_info("weights     none");
    return;
  }
  const CheckpointReader reader = CheckpointReader::open(dir);
  std::vector<TensorInfo> tensors;
  for (const std::string& name : reader.names()) tensors.push_back(*reader.find(name));
  print_tensors(tensors);
}

void print_tokenizer(const std::string& dir) {
  if (!fs::exists(fs::path(dir) / "tokenizer.json")) {
    log_info("tokenizer   none");
    return;
  }
  const Tokenizer tokenizer = Tokenizer::load(dir);
  const auto quoted = [](const std::optional<std::string>& token) {
    return token ? fmt::format("\"{}\"", printable(*token, 40)) : std::string("none");
  };
  log_info("tokenizer   {} tokens, bos {}, eos {}, pad {}, chat template {}", tokenizer.vocab_size(),
           quoted(tokenizer.bos_token()), quoted(tokenizer.eos_token()), quoted(tokenizer.pad_token()),
           tokenizer.chat_template() ? "yes" : "no");
}

void print_checkpoint(const std::string& dir) {
  fs::path path = fs::absolute(dir).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "checkpoint-3/"
  for (const CheckpointInfo& info : list_checkpoints(path.parent_path().string())) {
    if (fs::path(info.path).filename() != path.filename()) continue;
    log_info("checkpoint  step {}, {}, {}", info.step, info.fault.empty() ? "complete" : info.fault,
             info.has_state ? "with training state" : "weights only");
  }
}

void print_model_directory(const std::string& dir) {
  log_info("directory   {}", dir);
  print_checkpoint(dir);
  const ModelSpec model = ModelSpec::from_directory(dir);
  print_model(model);
  if (model.stored_dtype) log_info("dtype       {}", megatoken::name_of(*model.stored_dtype));
  print_weights(dir);
  print_tokenizer(dir);
}

void print_dataset(const std::string& name) {
  DatasetReader reader(DatasetSpec{.name = name});
  const DataFiles& files = reader.files();
  int64 rows = 0, text_bytes = 0, longest = 0, tokens = 0, completions = 0;
  std::string longest_place;
  RawRow row;
  while (reader.next(row)) {
    ++rows;
    const int64 size = row.kind == RawRow::Kind::ids ? static_cast<int64>(row.input_ids.size())
                                                     : static_cast<int64>(row.text.size() + row.completion.size());
    (row.kind == RawRow::Kind::ids ? tokens : text_bytes) += size;
    completions += row.kind == RawRow::Kind::prompt_completion;
    if (size > longest) {
      longest = size;
      longest_place = row.place();
    }
  }
  int64 file_bytes = 0;
  for (const std::string& path : files.paths) file_bytes += static_cast<int64>(fs::file_size(path));
  log_info("dataset     {}: {} {} file{}, {}", name, files.paths.size(), files.kind == FileKind::text ? "text" : "JSON",
           files.paths.size() == 1 ? "" : "s", bytes_text(file_bytes));
  if (files.splits.size() > 1)
    log_info("splits      {}; this is train", fmt::format("{}", fmt::join(files.splits, ", ")));
  std::string kinds;
  if (completions > 0) kinds += fmt::format(", {} with prompt and completion", completions);
  if (text_bytes > 0) kinds += fmt::format(", {} of text", bytes_text(text_bytes));
  if (tokens > 0) kinds += fmt::format(", {} tokens already there", tokens);
  log_info("rows        {}{}", rows, kinds);
  if (rows > 0)
    log_info("longest     {} ({})",
             tokens > 0 && text_bytes == 0 ? fmt::format("{} tokens", longest) : bytes_text(longest), longest_place);
  constexpr std::size_t kNamed = 5;
  for (std::size_t i = 0; i < std::min(kNamed, files.ignored.size()); ++i)
    log_info("not read    {}", printable(files.ignored[i], 4096));
  if (files.ignored.size() > kNamed) log_info("not read    {} files more", files.ignored.size() - kNamed);
}

bool looks_like_a_dataset(const fs::path& path) {
  const std::string extension = path.extension().string();
  if (extension == ".txt" || extension == ".jsonl" || extension == ".json") return true;  // there or not
  if (!fs::is_directory(path)) return fs::exists(path) || path.string().find_first_of("*?[") != std::string::npos;
  return !fs::exists(path / "config.json") && !fs::exists(path / "manifest.json");
}

}  // namespace

int run_inspect(const Invocation& invocation) {
  const std::string& path = invocation.path;
  if (path.ends_with(".safetensors") && fs::is_regular_file(path)) {
    const SafetensorsFile file = SafetensorsFile::open(path);
    log_info("file        {}, {}", path, bytes_text(static_cast<int64>(fs::file_size(path))));
    print_tensors(file.tensors());
  } else if (looks_like_a_dataset(path)) {
    print_dataset(path);
  } else {
    print_model_directory(find_model_directory(path, "main"));
  }
  return 0;
}

}  // namespace megatoken
