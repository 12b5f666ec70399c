// checkpoint-N directories that are whole or absent (docs/checkpoints.md).
//
// A checkpoint is built in <output_dir>/.tmp-checkpoint-N and takes its name by one rename once all its bytes are on
// the disk. Its manifest.json lists every file with its size, so a copy that was cut short is recognised too. Whatever
// kills the program, the last complete checkpoint stays usable, and what was left behind is removed at the next start.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace megatoken {

// Optimizer state lies beside the weights as <kOptimizerStem>*.safetensors, float32, one tensor per parameter and kind:
// "exp_avg.<parameter>", "exp_avg_sq.<parameter>", "master.<parameter>".
inline constexpr const char* kOptimizerStem = "optimizer";

class CheckpointDirWriter {
 public:
  // Makes an empty .tmp-checkpoint-<step> (and output_dir). TrainError.
  CheckpointDirWriter(const std::string& output_dir, int64 step);
  CheckpointDirWriter(const CheckpointDirWriter&) = delete;
  CheckpointDirWriter& operator=(const CheckpointDirWriter&) = delete;
  ~CheckpointDirWriter();  // removes what wasn't committed

  // Where the files of this checkpoint are to be written.
  const std::string& path() const { return temporary_; }

  // state.json: what resuming needs beside tensors (step, sampler, random state, counters). An object.
  void write_state(const nlohmann::json& state);

  // Syncs every file, writes the manifest, renames. An older checkpoint of the same step is replaced. Returns the final
  // path. TrainError; then output_dir is as before.
  std::string commit();

 private:
  std::string output_dir_, name_, temporary_;
  int64 step_;
  bool has_state_ = false;
  bool committed_ = false;
};

struct CheckpointInfo {
  int64 step = 0;
  std::string path;
  std::string fault;       // empty: complete
  bool has_state = false;  // can be resumed from (save_only_model leaves it out)
};

// The directories named checkpoint-<digits> in output_dir, by rising step. A missing output_dir has none.
std::vector<CheckpointInfo> list_checkpoints(const std::string& output_dir);

// The newest complete one with training state; newer ones that are not are named in a warning.
std::optional<std::string> find_last_checkpoint(const std::string& output_dir);

// FileError naming what is missing when `path` is not a complete checkpoint with training state.
void require_resumable(const std::string& path);

// state.json of a checkpoint; FileError.
nlohmann::json read_checkpoint_state(const std::string& path);

// Keeps the newest `limit` complete checkpoints (0: all). Only directories with this program's manifest are removed.
void prune_checkpoints(const std::string& output_dir, int64 limit);

// At the start of a run: removes what an earlier one left half-done in output_dir, gives a replaced checkpoint its name
// back when the replacing was cut off, and finishes putting a complete model in its place. Only one run may use an
// output_dir at a time.
void clean_leftovers(const std::string& output_dir);

}  // namespace megatoken
