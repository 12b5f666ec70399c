// What a run was asked to do: TRL's and accelerate's keys and our own, with their defaults (docs/configuration.md).
// Plain values; the key table (run_config_keys.h) says how each is read, and which keys are accepted or refused.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "spec/mesh.h"
#include "spec/model_spec.h"
#include "spec/policy.h"

namespace megatoken {

enum class DeviceChoice { automatic, cpu, cuda };
enum class SampleBy { line, paragraph, document };
enum class LongRows { truncate, split, concatenate };
enum class Sampling { random, sequential };
enum class Cadence { never, steps, epoch };
enum class DTypeChoice { unset, automatic, float32, bfloat16 };
enum class PlaceChoice { automatic, device, host };

struct ModelOptions {
  std::string name_or_path;       // a directory, or a name found in the local Hugging Face cache
  std::string revision = "main";  // of a cached name
  DTypeChoice dtype = DTypeChoice::unset;
  RopeOverride rope;
  DeviceChoice device = DeviceChoice::automatic;
  bool init_from_config = false;  // random weights
  std::optional<double> router_aux_loss_coef;  // nullopt: as config.json says

  bool operator==(const ModelOptions&) const = default;
};

struct DataOptions {
  std::string dataset_name;  // file, directory, glob, or json / text / parquet with data_files
  std::vector<std::string> data_files;
  std::string eval_dataset;  // as dataset_name
  std::string train_split = "train";
  std::string test_split = "test";
  SampleBy sample_by = SampleBy::document;
  std::string text_field = "text";
  std::optional<int64> max_length = 1024;  // tokens, over all ranks; nullopt (null): no limit
  bool max_length_given = false;
  LongRows long_rows = LongRows::truncate;
  bool long_rows_given = false;
  std::optional<bool> completion_only_loss;  // unset: by the kind of row
  std::string eos_token;
  bool shuffle_dataset = false;
  Sampling sampling = Sampling::random;
  int64 seed = 42;
  std::optional<int64> data_seed;

  bool operator==(const DataOptions&) const = default;
};

using SchedulerArgument = std::variant<double, std::string>;

struct TrainingOptions {
  std::string output_dir = "trainer_output";
  double num_train_epochs = 3.0;
  int64 max_steps = -1;  // positive: overrides num_train_epochs
  int64 per_device_train_batch_size = 8;
  int64 per_device_eval_batch_size = 8;
  int64 gradient_accumulation_steps = 1;

  double learning_rate = 2e-5;
  std::string lr_scheduler_type = "linear";
  std::map<std::string, SchedulerArgument> lr_scheduler_kwargs;  // checked against the schedule's own arguments
  double warmup_steps = 0;                                       // a fraction of all steps when under 1
  double warmup_ratio = 0;                                       // used when warmup_steps is 0
  double weight_decay = 0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;  // 0: no clipping

  std::optional<bool> bf16;
  bool mixed_precision_bf16 = false;  // mixed_precision: bf16

  Cadence logging_strategy = Cadence::steps;
  double logging_steps = 10;  // a fraction of all steps when under 1, like the next two
  bool logging_first_step = false;
  std::optional<int64> profile_step;  // the step whose timeline is written; steps count from 1
  Cadence eval_strategy = Cadence::never;
  std::optional<double> eval_steps;  // unset: logging_steps
  bool eval_on_start = false;
  Cadence save_strategy = Cadence::steps;
  double save_steps = 500;
  std::optional<int64> save_total_limit;
  bool save_only_model = false;
  std::string resume_from_checkpoint;  // a directory; "latest": the newest in output_dir; empty: none
  bool disable_progress_bar = false;
  bool tensorboard = true;  // event files are written
  std::string logging_dir;  // of event files; empty: output_dir/runs/<time>_<host>
  std::vector<std::pair<std::string, std::string>> env;  // set in the process before anything else starts

  bool operator==(const TrainingOptions&) const = default;
};

struct ParallelOptions {
  std::optional<int64> num_processes;  // over all machines
  int64 num_machines = 1;
  std::optional<int64> machine_rank;  // of this host
  std::string main_process_ip;        // machine 0
  std::optional<int64> main_process_port;
  std::optional<int64> cp, dp_shard, dp_replicate;
  std::optional<KvExchange> exchange;

  bool operator==(const ParallelOptions&) const = default;
};

// A user's pin of a per-layer activation: runs of layers from first to last. No runs: the planner chooses.
struct LayerPin {
  struct Run {
    Keep keep;
    int64 layers;  // -1: all layers
    bool operator==(const Run&) const = default;
  };
  std::vector<Run> runs;
  bool automatic() const { return runs.empty(); }
  bool operator==(const LayerPin&) const = default;
};

struct PlannerOptions {
  LayerPin attention_output;
  LayerPin layer_input;
  PlaceChoice optimizer_state = PlaceChoice::automatic;
  PlaceChoice gradients = PlaceChoice::automatic;
  PlaceChoice parameters = PlaceChoice::automatic;
  std::optional<int64> prefetch;       // layers fetched ahead: 0 or 1
  std::optional<int64> token_tile;     // tokens; 0 = all; unset = auto, like the next three
  std::optional<int64> loss_tile;      // labelled rows
  std::optional<int64> head_group;     // KV heads in a group
  std::optional<int64> kv_block;       // keys
  std::optional<int64> device_memory;  // bytes
  std::optional<int64> host_memory;    // bytes

  bool operator==(const PlannerOptions&) const = default;
};

struct RunConfig {
  std::string source;  // the file it was read from, for messages
  ModelOptions model;
  DataOptions data;
  TrainingOptions training;
  ParallelOptions parallel;
  PlannerOptions planner;

  std::vector<std::string> notices;          // to be printed once: "accepted, no effect: ..."
  std::map<std::string, std::string> given;  // every key that was given, by its canonical name, as JSON text

  bool operator==(const RunConfig&) const = default;
};

// One `--key value` of the command line; the key may be dotted, underscores and hyphens are equal, and no value means
// true. `values` holds more than one only for lists.
struct KeyOverride {
  std::string key;
  std::vector<std::string> values;
};

// Reads a YAML file, then the overrides in order. Throws ConfigError naming file, line and key: unknown keys (the
// nearest is suggested), duplicates, wrong types, refused keys, values out of range, keys that contradict each other.
// An empty path means no file.
RunConfig load_run_config(const std::string& yaml_path, const std::vector<KeyOverride>& overrides = {});
// As above from text; `source` names it in messages, and relative files are looked up from the working directory.
RunConfig parse_run_config(const std::string& yaml_text, const std::string& source,
                           const std::vector<KeyOverride>& overrides = {});

struct RunDTypes {
  DType compute;  // of gathered weights, activations and products: float32 or bfloat16
  DType saved;    // of the exported weights: float32 or bfloat16
};
// `stored` is the checkpoint's own dtype, asked for by dtype: auto. Throws ConfigError (bf16: false on CUDA).
RunDTypes resolve_dtypes(const RunConfig& config, bool on_cuda, std::optional<DType> stored);

// num_processes = dp_replicate x dp_shard x cp with the sizes that were given, else ConfigError naming the keys.
// Not given: cp 1, dp_replicate 1, dp_shard the rest.
Mesh resolve_mesh(const ParallelOptions& parallel, int64 num_processes);

// A number of steps, or a fraction of `total_steps` when `value` is under 1 (rounded up, as transformers does); at
// least 1.
int64 resolve_interval(double value, int64 total_steps);
// Warm-up steps of a run of `total_steps`.
int64 resolve_warmup(const TrainingOptions& training, int64 total_steps);

}  // namespace megatoken
