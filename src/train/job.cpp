#include "train/job.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "data/digest.h"
#include "data/files.h"
#include "data/token_cache.h"
#include "data/tokenizer_encoder.h"
#include "device/device.h"
#include "io/checkpoint_dir.h"
#include "io/file.h"
#include "io/model_files.h"
#include "model/parameters.h"
#include "model/weights.h"
#include "train/model_directory.h"
#include "train/planner/nearest.h"

namespace megatoken {
namespace {

namespace fs = std::filesystem;

// Text rows need the model's tokenizer; rows of ids do not, so it is loaded only where there is one.
TextEncoder encoder_of(const std::string& model_dir, const DataOptions& data) {
  if (fs::exists(model_dir + "/tokenizer.json"))
    return make_text_encoder(std::make_shared<const Tokenizer>(Tokenizer::load(model_dir)), data.eos_token);
  TextEncoder none;
  none.encode = [model_dir](std::string_view, int, int64&) -> std::vector<std::int32_t> {
    throw FileError("{}: text rows need a tokenizer, and tokenizer.json is not there", model_dir);
  };
  return none;
}

// "books: 3 files of other kinds or splits are not read: books/a.md, ..."; nothing when all are.
void note_ignored(const std::string& name, const std::vector<std::string>& ignored, RunConfig& config) {
  constexpr std::ptrdiff_t kNamed = 5;
  if (ignored.empty()) return;
  const std::vector<std::string> named(ignored.begin(), ignored.begin() + std::min(kNamed, std::ssize(ignored)));
  config.notices.push_back(fmt::format("{}: {} files of other kinds or splits are not read: {}{}", printable(name, 4096),
                                       ignored.size(), printable(fmt::format("{}", fmt::join(named, ", ")), 4096),
                                       std::ssize(named) < std::ssize(ignored) ? ", ..." : ""));
}

PreparedDataset prepare(Job& job, const std::string& name, const std::vector<std::string>& files,
                        const std::string& split, PrepareCounts& counts) {
  const DataOptions& data = job.config.data;
  DatasetSpec spec;
  spec.name = name;
  spec.data_files = files;
  spec.split = split;
  spec.unit = data.sample_by == SampleBy::line        ? TextUnit::line
              : data.sample_by == SampleBy::paragraph ? TextUnit::paragraph
                                                      : TextUnit::document;
  spec.text_field = data.text_field;
  note_ignored(name, find_data_files(name, files, split).ignored, job.config);
  PrepareOptions options;
  options.max_length = data.max_length;
  options.max_length_given = data.max_length_given;
  options.long_rows = data.long_rows == LongRows::split         ? LongRowRule::split
                      : data.long_rows == LongRows::concatenate ? LongRowRule::concatenate
                                                                : LongRowRule::truncate;
  options.completion_only_loss = data.completion_only_loss;
  options.vocab_size = job.model.vocab_size;
  options.threads = static_cast<int>(job.machine.cores);
  return prepare_dataset_cached(spec, encoder_of(job.model_dir, data), options, counts, default_cache_dir());
}

void read_data(Job& job, Purpose purpose) {
  const DataOptions& data = job.config.data;
  const TrainingOptions& training = job.config.training;
  if (purpose == Purpose::train) {
    if (data.dataset_name.empty()) throw ConfigError("dataset_name: not given");
    job.train_data = std::make_shared<const PreparedDataset>(
        prepare(job, data.dataset_name, data.data_files, data.train_split, job.train_counts));
  }
  const bool evaluates =
      purpose == Purpose::evaluate || training.eval_strategy != Cadence::never || training.eval_on_start;
  if (!evaluates) return;
  if (data.eval_dataset.empty() && data.dataset_name.empty()) throw ConfigError("eval_dataset: not given");
  const bool own = !data.eval_dataset.empty();
  job.eval_data = std::make_shared<const PreparedDataset>(
      prepare(job, own ? data.eval_dataset : data.dataset_name, own ? std::vector<std::string>{} : data.data_files,
              own ? "train" : data.test_split, job.eval_counts));
}

// The largest micro-batch: as many documents as a rank takes, each as long as the longest row can be.
std::vector<int64> largest_batch(const std::shared_ptr<const PreparedDataset>& data, std::optional<int64> max_length,
                                 int64 batch) {
  if (data == nullptr) {
    if (!max_length) throw ConfigError("max_length: planning needs a length");
    return std::vector<int64>(static_cast<std::size_t>(batch), *max_length);
  }
  const int64 rows = std::min(batch, data->rows());
  return std::vector<int64>(static_cast<std::size_t>(rows), data->longest());
}

// Ranks without a token of any row, or without a piece of any weight, would only wait for the others.
void require_filled(const Job& job) {
  const auto& max_length = job.config.data.max_length;
  if (max_length && job.mesh.cp > *max_length)
    throw ConfigError("cp_size {}: more ranks than the tokens of a row (max_length {}); lower cp_size, num_processes with it",
                      job.mesh.cp, *max_length);
  int64 most = 0;
  for (const BucketSpec& bucket : make_buckets(job.model))
    most = std::max(most, (bucket.elements + BucketSpec::kAlignment - 1) / BucketSpec::kAlignment);
  if (job.mesh.shards() > most)
    throw ConfigError("dp_shard_size {} x cp_size {}: more ranks than this model's largest layer has pieces of {} weights ({}); "
                      "lower num_processes or take dp_replicate_size", job.mesh.dp_shard, job.mesh.cp, BucketSpec::kAlignment, most);
}

std::string last_checkpoint(const std::string& output_dir) {
  const auto found = find_last_checkpoint(output_dir);
  if (!found) throw ConfigError("resume_from_checkpoint: no complete checkpoint in {}", output_dir);
  return *found;
}

void choose_resume(Job& job, const Company& company) {
  const std::string& asked = job.config.training.resume_from_checkpoint;
  if (asked.empty()) return;
  job.resume_from = asked;
  if (asked == "latest")
    job.resume_from = company.of_first("resume_from", [&] { return last_checkpoint(job.config.training.output_dir); });
  require_resumable(job.resume_from);
}

// What the ranks' programs must have alike to meet in the same collectives with the same data.
void require_equal_runs(const Job& job, const Company& company) {
  company.require_equal(job.model_dir + "/config.json", config_json_to_save(job.model, job.dtypes.saved));
  const auto fingerprint = [](const auto& data) { return data == nullptr ? "" : std::to_string(data->fingerprint()); };
  company.require_equal("the dataset " + job.config.data.dataset_name, fingerprint(job.train_data));
  company.require_equal("the evaluation dataset", fingerprint(job.eval_data));
  Digest plan;
  plan.add(job.on_cuda ? 1 : 0);
  for (const PlannedBuffer& buffer : job.plan.buffers) {
    plan.add(buffer.name);
    plan.add(buffer.bytes);
  }
  company.require_equal("the plan", plan.hex());
}

}  // namespace

void require_fit(const Job& job) {
  require_fit(job.plan, [&] { return nearest_fit(job.shape, job.config.planner, job.config.parallel, job.plan.budget, job.target.rates); });
}

Job make_job(RunConfig config, Purpose purpose, int64 num_processes, const Company& company) {
  Job job;
  job.config = std::move(config);
  const RunConfig& c = job.config;
  if (c.model.name_or_path.empty()) throw ConfigError("model_name_or_path: not given");
  job.mesh = resolve_mesh(c.parallel, num_processes);
  job.target = choose_target(c, num_processes, purpose, company);
  job.machine = job.target.machine;
  job.on_cuda = job.target.on_cuda;
  job.ranks_per_host = job.target.ranks_per_host;
  job.ranks_per_device = job.target.ranks_per_device;
  job.local_ranks = company.local_ranks(num_processes, c.parallel.num_machines);
  job.model_dir = find_model_directory(c.model.name_or_path, c.model.revision);
  job.model = ModelSpec::from_directory(job.model_dir);
  if (!c.model.rope.empty()) override_rope(job.model, c.model.rope);
  if (const auto coef = c.model.router_aux_loss_coef) {
    if (*coef != 0 && job.model.experts.count == 0)
      throw ConfigError("router_aux_loss_coef: {} is given, but {} describes a model without experts", *coef, job.model.source);
    job.model.experts.aux_loss_coef = *coef;
  }
  require_filled(job);
  job.dtypes = resolve_dtypes(c, job.on_cuda, job.model.stored_dtype);
  if (!plans_only(purpose)) {
    if (!c.model.init_from_config) {
      job.weights = std::make_shared<const CheckpointReader>(CheckpointReader::open(job.model_dir));
      job.model.expert_layout = expert_layout_of(job.model, *job.weights);
      check_weights(job.model, make_buckets(job.model), *job.weights);
    }
    if (purpose == Purpose::train) {
      if (company.first()) check_writable(c.training.output_dir);
      choose_resume(job, company);
    }
    company.one_of_host_first("data", [&] { read_data(job, purpose); });
  }
  RunShape& shape = job.shape;
  shape = {job.model, job.mesh, job.dtypes.compute, job.on_cuda, {}, {}, c.training.gradient_accumulation_steps};
  if (purpose != Purpose::evaluate)
    shape.train_documents = largest_batch(job.train_data, c.data.max_length, c.training.per_device_train_batch_size);
  if (job.eval_data != nullptr)
    shape.eval_documents = largest_batch(job.eval_data, c.data.max_length, c.training.per_device_eval_batch_size);
  shape.ranks_per_device = job.ranks_per_device;
  const PlanBudget budget = budget_of(c.planner, job.machine, job.ranks_per_host, job.on_cuda, job.ranks_per_device);
  job.plan = plan_run(shape, c.planner, c.parallel, budget, job.target.rates);
  if (plans_only(purpose)) return job;
  require_fit(job);
  require_equal_runs(job, company);
  return job;
}

}  // namespace megatoken
