#include "io/checkpoint_dir.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "io/file.h"
#include "io/json.h"
#include "io/model_files.h"

namespace megatoken {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "checkpoint-";
constexpr const char* kManifest = "manifest.json";
constexpr const char* kState = "state.json";
constexpr int64 kFormat = 1;

// <N> of "checkpoint-<N>"; none for any other name.
std::optional<int64> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  int64 step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || name.empty() || name[0] == '-') return std::nullopt;
  return step;
}

void sync_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool failed = fd < 0 || ::fsync(fd) != 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (failed) throw TrainError("cannot write {}: {}", path, ::strerrordesc_np(error));
}

// {"relative/name": bytes} of every file below dir, each of them synced on the way.
nlohmann::json sync_tree(const fs::path& dir) {
  nlohmann::json files = nlohmann::json::object();
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    if (entry.is_directory()) {
      sync_directory(entry.path().string());
    } else if (entry.is_regular_file()) {
      sync_file(entry.path().string());
      files[entry.path().lexically_relative(dir).generic_string()] = entry.file_size();
    }
  }
  return files;
}

// Both names exist and change places in one step. False where the file system can't.
bool exchange_names(const std::string& a, const std::string& b) {
  return ::syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

CheckpointInfo inspect(const fs::path& path, int64 step) {
  CheckpointInfo info{step, path.string(), "", false};
  const fs::path manifest_path = path / kManifest;
  std::error_code error;
  if (!fs::exists(manifest_path, error)) {
    info.fault = fs::exists(path / "trainer_state.json", error)
                     ? "was written by transformers' Trainer, whose training state is not read"
                     : fmt::format("has no {}", kManifest);
    return info;
  }
  try {
    const std::string where = manifest_path.string();
    const nlohmann::json manifest = read_json_file(where);
    const auto format = require(manifest, "format", nlohmann::json::value_t::number_integer, where).get<int64>();
    if (format != kFormat) throw FileError("format {} is not known to this version", format);
    for (const auto& [name, bytes] : require(manifest, "files", nlohmann::json::value_t::object, where).items()) {
      if (!bytes.is_number_integer()) throw FileError("\"{}\" has no size", printable(name));
      const auto size = fs::file_size(path / name, error);
      if (error) throw FileError("lacks {}", printable(name));
      if (static_cast<int64>(size) != bytes.get<int64>())
        throw FileError("{} has {} bytes, not {}", printable(name), size, bytes.get<int64>());
      info.has_state |= name == kState;
    }
  } catch (const FileError& fault) {
    info.fault = fault.what();
  }
  return info;
}

// Out of sight by one rename, then removed: a kill in between leaves a name that clean_leftovers knows.
void remove_checkpoint(const std::string& output_dir, const std::string& path) {
  const fs::path trash = fs::path(output_dir) / (".trash-" + fs::path(path).filename().string());
  std::error_code ignored;
  fs::remove_all(trash, ignored);
  rename_path(path, trash.string());
  std::error_code error;
  fs::remove_all(trash, error);
  if (error) log_warning("cannot remove {}: {}", trash.string(), error.message());
}

// ".<name>.tmp-<pid>-<count>", as write_file_atomic, SafetensorsWriter and check_writable name them.
bool is_temporary_file(std::string_view name) {
  const auto at = name.rfind(".tmp-");
  if (!name.starts_with('.') || at == name.npos || at == 0) return false;
  const std::string_view tail = name.substr(at + 5);
  const auto dash = tail.find('-');
  const auto digits = [](std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  return dash != tail.npos && digits(tail.substr(0, dash)) && digits(tail.substr(dash + 1));
}

}  // namespace

CheckpointDirWriter::CheckpointDirWriter(const std::string& output_dir, int64 step)
    : output_dir_(output_dir), name_(fmt::format("{}{}", kPrefix, step)), step_(step) {
  check(step >= 0, "checkpoint of step {}", step);
  temporary_ = (fs::path(output_dir) / (".tmp-" + name_)).string();
  make_directories(output_dir);
  std::error_code error;
  fs::remove_all(temporary_, error);
  if (error) throw TrainError("cannot remove {}: {}", temporary_, error.message());
  make_directories(temporary_);
}

CheckpointDirWriter::~CheckpointDirWriter() {
  if (committed_) return;
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
}

void CheckpointDirWriter::write_state(const nlohmann::json& state) {
  check(state.is_object(), "the training state is not an object");
  write_file_atomic((fs::path(temporary_) / kState).string(), state.dump(1) + "\n");
  has_state_ = true;
}

std::string CheckpointDirWriter::commit() {
  check(!committed_, "{} is committed already", name_);
  const std::string target = (fs::path(output_dir_) / name_).string();
  nlohmann::json manifest;
  manifest["format"] = kFormat;
  manifest["step"] = step_;
  try {
    manifest["files"] = sync_tree(temporary_);
  } catch (const fs::filesystem_error& error) {
    throw TrainError("cannot write {}: {}", target, error.code().message());
  }
  write_file_atomic((fs::path(temporary_) / kManifest).string(), manifest.dump(1) + "\n");
  sync_directory(temporary_);

  std::error_code ignored;
  if (!fs::exists(target, ignored)) {
    rename_path(temporary_, target);
    committed_ = true;
  } else if (exchange_names(temporary_, target)) {
    committed_ = true;
    fs::remove_all(temporary_, ignored);
  } else {
    const std::string old = (fs::path(output_dir_) / (".old-" + name_)).string();
    fs::remove_all(old, ignored);
    rename_path(target, old);
    rename_path(temporary_, target);
    committed_ = true;
    fs::remove_all(old, ignored);
  }
  sync_directory(output_dir_);
  return target;
}

std::vector<CheckpointInfo> list_checkpoints(const std::string& output_dir) {
  std::vector<CheckpointInfo> found;
  std::error_code error;
  for (fs::directory_iterator at(output_dir, error), end; !error && at != end; at.increment(error)) {
    const auto step = step_of(at->path().filename().string());
    std::error_code ignored;
    if (step && at->is_directory(ignored)) found.push_back(inspect(at->path(), *step));
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return found;
}

std::optional<std::string> find_last_checkpoint(const std::string& output_dir) {
  const std::vector<CheckpointInfo> all = list_checkpoints(output_dir);
  for (auto info = all.rbegin(); info != all.rend(); ++info) {
    if (info->fault.empty() && info->has_state) return info->path;
    log_warning("{} is passed over: it {}", info->path,
                info->fault.empty() ? "holds a model without training state" : info->fault);
  }
  return std::nullopt;
}

void require_resumable(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) throw FileError("{}: no such checkpoint directory", printable(path, 4096));
  const CheckpointInfo info = inspect(path, 0);
  if (!info.fault.empty()) throw FileError("{}: not a complete checkpoint: it {}", printable(path, 4096), info.fault);
  if (!info.has_state)
    throw FileError(
        "{}: holds a model without training state (saved with save_only_model); start from it as "
        "model_name_or_path instead",
        printable(path, 4096));
}

nlohmann::json read_checkpoint_state(const std::string& path) {
  const std::string file = (fs::path(path) / kState).string();
  nlohmann::json state = read_json_file(file);
  if (!state.is_object()) throw FileError("{}: not an object", printable(file, 4096));
  return state;
}

void prune_checkpoints(const std::string& output_dir, int64 limit) {
  if (limit <= 0) return;
  std::vector<CheckpointInfo> ours = list_checkpoints(output_dir);
  std::erase_if(ours, [](const CheckpointInfo& info) { return !info.fault.empty(); });
  const auto count = static_cast<int64>(ours.size());
  for (int64 i = 0; i < count - limit; ++i) remove_checkpoint(output_dir, ours[static_cast<std::size_t>(i)].path);
}

void clean_leftovers(const std::string& output_dir) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(output_dir, error), end; !error && at != end; at.increment(error))
    entries.push_back(at->path());
  for (const fs::path& path : entries) {
    const std::string name = path.filename().string();
    const auto named = [&](std::string_view prefix) {
      return name.starts_with(prefix) && step_of(std::string_view(name).substr(prefix.size()));
    };
    std::error_code ignored;
    if (named(".old-")) {
      const fs::path original = path.parent_path() / name.substr(5);
      if (!fs::exists(original, ignored)) {
        rename_path(path.string(), original.string());
        continue;
      }
    } else if (name == kStagingName) {
      finish_or_drop_model(path.string(), output_dir);
      continue;
    } else if (!named(".tmp-") && !named(".trash-") && !is_temporary_file(name)) {
      continue;
    }
    std::error_code failed;
    fs::remove_all(path, failed);
    if (failed) log_warning("cannot remove {}: {}", path.string(), failed.message());
  }
}

}  // namespace megatoken
