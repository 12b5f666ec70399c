#include "train/saving.h"

#include <filesystem>
#include <functional>
#include <memory>

#include "io/checkpoint_dir.h"
#include "io/file.h"
#include "io/model_files.h"
#include "model/parameters.h"
#include "model/weights.h"

namespace megatoken {
namespace {

const SavedState kWeights{StateKind::master, ""};
const std::vector<SavedState> kOptimizer{{StateKind::master, "master."},
                                         {StateKind::exp_avg, "exp_avg."},
                                         {StateKind::exp_avg_sq, "exp_avg_sq."}};

// Runs `work` on rank 0 alone and lets every rank fail with its error: nobody waits for a collective that won't come.
void on_first(Rank& rank, const std::function<void()>& work) {
  std::exception_ptr error;
  if (rank.first()) try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
  double failed = error ? 1 : 0;
  rank.world().all_reduce_host(std::span(&failed, 1), Reduce::max);
  if (error) std::rethrow_exception(error);
  if (failed != 0) throw TrainError("rank 0 could not save");
}

bool saves(const Rank& rank) { return rank.job().mesh.replica(rank.world().rank()) == 0; }

// Every rank of the first replica takes part; rank 0 writes.
void write_states(Rank& rank, const std::string& dir, const std::string& stem, const std::vector<SavedState>& states, DType dtype) {
  std::unique_ptr<SafetensorsWriter> writer;
  on_first(rank, [&] {
    SafetensorsWriterOptions options;
    options.stem = stem;
    writer = std::make_unique<SafetensorsWriter>(dir, declare_tensors(rank.parameters().buckets(), states, dtype), options);
  });
  if (saves(rank))
    for (const SavedState& state : states)
      save_state(rank.parameters(), rank.stream(), rank.shards(), state, dtype, writer.get());
  on_first(rank, [&] { writer->finish(); });
}

void write_model_files(const Rank& rank, const std::string& dir) {
  const Job& job = rank.job();
  write_file_atomic(dir + "/config.json", config_json_to_save(job.model, job.dtypes.saved));
  copy_tokenizer_files(job.model_dir, dir);
}

}  // namespace

void save_checkpoint(Rank& rank, const Progress& progress) {
  const TrainingOptions& training = rank.job().config.training;
  std::unique_ptr<CheckpointDirWriter> writer;
  on_first(rank, [&] { writer = std::make_unique<CheckpointDirWriter>(training.output_dir, progress.step); });
  const std::string dir = writer == nullptr ? "" : writer->path();
  write_states(rank, dir, "model", {kWeights}, rank.job().dtypes.saved);
  if (!training.save_only_model) write_states(rank, dir, kOptimizerStem, kOptimizer, DType::f32);
  on_first(rank, [&] {
    write_model_files(rank, dir);
    if (!training.save_only_model)
      writer->write_state({{"step", progress.step}, {"num_tokens", progress.num_tokens}, {"sampler", progress.sampler},
                           {"parameters", count_parameters(rank.job().model)}});
    writer->commit();
    if (training.save_total_limit) prune_checkpoints(training.output_dir, *training.save_total_limit);
  });
}

void save_final_model(Rank& rank) {
  const std::string output_dir = rank.job().config.training.output_dir;
  const std::string staging = output_dir + "/" + kStagingName;
  on_first(rank, [&] {
    std::filesystem::remove_all(staging);
    make_directories(staging);
  });
  write_states(rank, staging, "model", {kWeights}, rank.job().dtypes.saved);
  on_first(rank, [&] {
    write_model_files(rank, staging);
    publish_model(staging, output_dir);
  });
}

Progress resume(Rank& rank, const std::string& checkpoint) {
  const auto reader = CheckpointReader::open(checkpoint, kOptimizerStem);
  for (const SavedState& state : kOptimizer) load_state(rank.parameters(), rank.stream(), state, reader);
  const nlohmann::json state = read_checkpoint_state(checkpoint);
  try {
    return {state.at("step").get<int64>(), state.at("num_tokens").get<double>(), state.at("sampler")};
  } catch (const nlohmann::json::exception&) {
    throw FileError("{}/state.json: step, num_tokens or sampler is missing or of another type", checkpoint);
  }
}

}  // namespace megatoken
