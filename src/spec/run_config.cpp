#include "spec/run_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "spec/accelerate_profiles.h"
#include "spec/config_scalar.h"
#include "spec/lr_schedule_keys.h"
#include "spec/run_config_keys.h"
#include "spec/yaml_source.h"

namespace megatoken {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uintmax_t kMostBytes = 4u << 20;

// Where a value came from; a higher one replaces a lower.
enum class Level { profile, accelerate, file, command };

struct Entry {
  Json json;
  std::string place;
  Level level;
};

std::string read_text(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) throw ConfigError("{}: is a directory, not a YAML file", path);
  const auto bytes = std::filesystem::file_size(path, error);
  if (error) throw ConfigError("{}: {}", path, error.message());
  if (bytes > kMostBytes) throw ConfigError("{}: {} bytes is no configuration", path, bytes);
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ConfigError("{}: could not be read", path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// All values by canonical key, before they are put into a RunConfig.
class Collection {
 public:
  void add_file(const YamlValue& root, const std::string& source, Level level) {
    if (root.json.is_null()) return;
    if (!root.is_map) throw ConfigError("{}:{}: must hold keys and values", source, root.line);
    for (const auto& member : root.members) add(member.key, member.value, source, member.line, level);
  }

  void add_override(const KeyOverride& item) {
    const std::string shown = "--" + one_line(item.key);
    for (const std::string& value : item.values)
      if (!is_utf8(value)) throw ConfigError("{}: not valid UTF-8", shown);
    const KeyInfo& row = known(item.key, shown, Level::command);
    if (row.type == ValueType::map && canonical_path(item.key) != row.name) {
      set_inside_map(item, row, shown);
      return;
    }
    const Json value = value_of(item, row, shown);
    if (row.type == ValueType::container) {
      const YamlValue parsed = parse_yaml(value.dump(), shown);
      if (!parsed.is_map) throw ConfigError("{} must be a dictionary, not {}", shown, value.dump());
      for (const auto& member : parsed.members) {
        const std::string inner = shown + "." + one_line(member.key);
        put(known(item.key + "." + member.key, inner, Level::command), member.value.json, inner, Level::command);
      }
      return;
    }
    put(row, value, shown, Level::command);
  }

  const Entry* find(std::string_view key) const {
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : &found->second;
  }

 private:
  void add(const std::string& key, const YamlValue& value, const std::string& source, int line, Level level) {
    const std::string place = level == Level::profile ? fmt::format("{}: {}", source, one_line(key))
                                                      : fmt::format("{}:{}: {}", source, line, one_line(key));
    const KeyInfo& row = known(key, place, level);
    if (row.type != ValueType::container) {
      put(row, value.json, place, level);
      return;
    }
    if (value.json.is_null()) return;
    if (!value.is_map) throw ConfigError("{} must be a dictionary, not {}", place, value.json.dump());
    for (const auto& member : value.members) add(key + "." + member.key, member.value, source, member.line, level);
  }

  const KeyInfo& known(const std::string& key, const std::string& place, Level level) const {
    const KeyInfo* row = find_key(key);
    if (row == nullptr) {
      const std::string nearest = nearest_key(key);
      throw ConfigError("{}: unknown key{}", place,
                        nearest.empty() ? "; megatoken train --help-keys lists all keys"
                                        : fmt::format("; did you mean {}?", nearest));
    }
    const bool of_run = row->group != KeyGroup::parallel && row->name != "mixed_precision" && row->name != "use_cpu" &&
                        row->name != "device";
    if (level == Level::accelerate && of_run) throw ConfigError("{}: is no key of an accelerate configuration", place);
    return *row;
  }

  void put(const KeyInfo& row, const Json& json, const std::string& place, Level level) {
    const auto [found, inserted] = entries_.try_emplace(std::string(row.name), Entry{json, place, level});
    if (inserted) return;
    const bool twice = found->second.level == level && level != Level::command;
    if (twice && found->second.json != json) throw ConfigError("{}: also given as {}", place, found->second.place);
    if (level >= found->second.level) found->second = Entry{json, place, level};
  }

  static std::string canonical_path(const std::string& key) {
    const KeyInfo* row = find_key(key);
    std::string path = key;
    std::replace(path.begin(), path.end(), '-', '_');
    if (row != nullptr && row->type == ValueType::map && path.find('.') == std::string::npos)
      return std::string(row->name);
    return path;
  }

  // --lr_scheduler_kwargs.num_cycles 2
  void set_inside_map(const KeyOverride& item, const KeyInfo& row, const std::string& shown) {
    std::string path = canonical_path(item.key);
    const std::string inner = path.substr(path.rfind('.') + 1);
    if (item.values.size() != 1) throw ConfigError("{} needs one value", shown);
    const Entry* old = find(row.name);
    Json map = old != nullptr && old->json.is_object() ? old->json : Json::object();
    map[inner] = scalar_or_flow(item.values.front(), shown);
    put(row, map, old != nullptr ? old->place + " and " + shown : shown, Level::command);
  }

  static Json scalar_or_flow(const std::string& text, const std::string& shown) {
    if (text.starts_with('{') || text.starts_with('[') || text.starts_with('"') || text.starts_with('\''))
      return parse_yaml(text, shown).json;
    return resolve_scalar(text);
  }

  static Json value_of(const KeyOverride& item, const KeyInfo& row, const std::string& shown) {
    const bool takes_several = row.type == ValueType::list || row.type == ValueType::any;
    if (takes_several && item.values.size() > 1) {
      Json list = Json::array();
      for (const std::string& value : item.values) list.push_back(value);
      return list;
    }
    if (item.values.empty()) return true;
    if (item.values.size() > 1) throw ConfigError("{} takes one value, not {}", shown, item.values.size());
    const std::string& text = item.values.front();
    const bool is_flow = text.starts_with('{') || text.starts_with('[');
    switch (row.type) {
      case ValueType::text:
        return text;
      case ValueType::choice:
        return (text == "null" || text == "None") && row.nullable ? Json(nullptr) : Json(text);
      case ValueType::flag:
        if (const auto flag = parse_flag(text)) return *flag;
        return (text == "null" || text == "none" || text == "None") && row.nullable ? Json(nullptr) : Json(text);
      case ValueType::list:
        return is_flow ? parse_yaml(text, shown).json : Json(text);
      default:
        if (text == "None" || text == "none") return row.nullable ? Json(nullptr) : Json(text);
        return scalar_or_flow(text, shown);
    }
  }

  std::map<std::string, Entry, std::less<>> entries_;
};

bool is_harmless(const KeyInfo& row, const Json& value) {
  if (value.is_null() || (value.is_structured() && value.empty())) return true;
  std::string_view list = row.harmless;
  while (!list.empty()) {
    const auto bar = list.find('|');
    if (value == Json::parse(list.substr(0, bar))) return true;
    list = bar == std::string_view::npos ? std::string_view{} : list.substr(bar + 1);
  }
  return false;
}

void apply(const KeyInfo& row, const Entry& entry, RunConfig& config) {
  const KeyValue value(entry.place, entry.json);
  switch (row.use) {
    case KeyClass::refused:
      if (is_harmless(row, entry.json)) return;
      value.fail("{} is refused: {}", entry.json.dump(-1, ' ', false, Json::error_handler_t::replace), row.help);
    case KeyClass::accepted:
      if (entry.level != Level::profile)
        config.notices.push_back(fmt::format("accepted, no effect: {} ({})", row.name, row.help));
      return;
    case KeyClass::honoured:
      if (entry.json.is_null() && !row.nullable) value.fail("has no value");
      if (row.type == ValueType::map && !entry.json.is_object() && !entry.json.is_null())
        value.expected("a dictionary");
      row.set(config, value);
      config.given[std::string(row.name)] = entry.json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
}

// The keys of `accelerate_config` go under those of the run.
void add_accelerate_config(Collection& collection, const std::string& source) {
  const Entry* entry = collection.find("accelerate_config");
  if (entry == nullptr || entry->json.is_null()) return;
  const std::string name = KeyValue(entry->place, entry->json).text();
  if (const auto profile = accelerate_profile(name)) {
    collection.add_file(parse_yaml(*profile, name), name, Level::profile);
    return;
  }
  std::filesystem::path path(name);
  const std::filesystem::path beside = std::filesystem::path(source).parent_path() / path;
  if (!std::filesystem::exists(path) && path.is_relative() && std::filesystem::exists(beside)) path = beside;
  if (!std::filesystem::exists(path))
    throw ConfigError("{}: {} is neither a file nor a profile ({})", entry->place, one_line(name),
                      accelerate_profile_names());
  collection.add_file(parse_yaml(read_text(path.string()), path.string()), path.string(), Level::accelerate);
}

// distributed_type NO means one process, unless a closer key says how many.
void settle_single_process(Collection& collection, RunConfig& config) {
  const Entry* type = collection.find("distributed_type");
  const Entry* count = collection.find("num_processes");
  if (type == nullptr || (type->json != false && type->json != "NO")) return;
  if (count == nullptr || count->level <= type->level) config.parallel.num_processes = 1;
}

void check_together(const Collection& collection, const RunConfig& config) {
  const auto place = [&](const char* key) {
    const Entry* entry = collection.find(key);
    return entry != nullptr ? entry->place : std::string(key);
  };
  const char* schedule_key = config.training.lr_scheduler_kwargs.empty() ? "lr_scheduler_type" : "lr_scheduler_kwargs";
  check_schedule(config.training, place(schedule_key));

  if (config.training.adam_beta1 >= 1 || config.training.adam_beta2 >= 1)
    throw ConfigError("{} must be less than 1", place(config.training.adam_beta1 >= 1 ? "adam_beta1" : "adam_beta2"));
  if (!config.data.data_files.empty() && config.data.dataset_name != "json" && config.data.dataset_name != "text" &&
      config.data.dataset_name != "parquet")
    throw ConfigError("{}: needs dataset_name: json, text or parquet", place("data_files"));
}

}  // namespace

RunConfig load_run_config(const std::string& yaml_path, const std::vector<KeyOverride>& overrides) {
  return parse_run_config(yaml_path.empty() ? "" : read_text(yaml_path), yaml_path, overrides);
}

RunConfig parse_run_config(const std::string& yaml_text, const std::string& source,
                           const std::vector<KeyOverride>& overrides) {
  Collection collection;
  collection.add_file(parse_yaml(yaml_text, source), source, Level::file);
  for (const KeyOverride& item : overrides) collection.add_override(item);
  add_accelerate_config(collection, source);

  RunConfig config;
  config.source = source;
  for (const KeyInfo& row : run_config_keys())
    if (const Entry* entry = collection.find(row.name)) apply(row, *entry, config);
  settle_single_process(collection, config);
  check_together(collection, config);
  return config;
}

RunDTypes resolve_dtypes(const RunConfig& config, bool on_cuda, std::optional<DType> stored) {
  DTypeChoice choice = config.model.dtype;
  if (choice == DTypeChoice::automatic)
    choice = stored.value_or(DType::f32) == DType::f32 ? DTypeChoice::float32 : DTypeChoice::bfloat16;
  if (on_cuda && config.training.bf16 == false)
    throw ConfigError(
        "bf16: false is refused on CUDA, where training runs in bfloat16 (device: cpu trains in float32)");
  const bool asked =
      config.training.bf16.value_or(false) || config.training.mixed_precision_bf16 || choice == DTypeChoice::bfloat16;
  RunDTypes result{on_cuda || asked ? DType::bf16 : DType::f32, DType::bf16};
  const bool unset_float = choice == DTypeChoice::unset && result.compute == DType::f32;
  if (choice == DTypeChoice::float32 || unset_float) result.saved = DType::f32;
  return result;
}

Mesh resolve_mesh(const ParallelOptions& parallel, int64 num_processes) {
  Mesh mesh;
  mesh.cp = parallel.cp.value_or(1);
  mesh.dp_replicate = parallel.dp_replicate.value_or(1);
  const int64 others = mesh.cp * mesh.dp_replicate;
  mesh.dp_shard = parallel.dp_shard.value_or(std::max<int64>(1, num_processes / others));
  if (mesh.size() != num_processes)
    throw ConfigError("num_processes {} must equal dp_replicate_size {} x dp_shard_size {}{} x cp_size {}",
                      num_processes, mesh.dp_replicate, mesh.dp_shard, parallel.dp_shard ? "" : " (not given)",
                      mesh.cp);
  return mesh;
}

int64 resolve_interval(double value, int64 total_steps) {
  const double steps = value < 1 ? std::ceil(value * static_cast<double>(total_steps)) : value;
  return std::max<int64>(1, static_cast<int64>(steps));
}

int64 resolve_warmup(const TrainingOptions& training, int64 total_steps) {
  if (training.warmup_steps >= 1) return static_cast<int64>(training.warmup_steps);
  const double fraction = training.warmup_steps > 0 ? training.warmup_steps : training.warmup_ratio;
  return static_cast<int64>(std::ceil(fraction * static_cast<double>(total_steps)));
}

}  // namespace megatoken
