// A run made ready: configuration, model, data, mesh and plan, checked against each other before any rank starts.
// Shared, read-only, by the ranks of one process.
#pragma once

#include <memory>
#include <string>

#include "data/prepare.h"
#include "io/checkpoint_reader.h"
#include "train/company.h"
#include "train/planned_run.h"
#include "train/target.h"

namespace megatoken {

struct Job {
  RunConfig config;
  std::string model_dir;
  ModelSpec model;
  Mesh mesh;
  Target target;
  Machine machine;  // the target's
  RunDTypes dtypes{};
  bool on_cuda = false;
  int64 ranks_per_device = 1;  // threads of this process that share a GPU
  std::shared_ptr<const PreparedDataset> train_data, eval_data;  // null where there is none
  PrepareCounts train_counts, eval_counts;
  std::shared_ptr<const CheckpointReader> weights;  // null: random weights
  RunShape shape;
  PlannedRun plan;
  std::string resume_from;  // a complete checkpoint; empty: from the start
  int64 ranks_per_host = 1;
  std::vector<int64> local_ranks;  // by rank: its place among those of its host
};

// Throws ConfigError, FileError or FitError. num_processes: ranks of the whole job, of which `company` has this process'.
// Where it matters, the processes of a job come to the same run, or to an error.
Job make_job(RunConfig config, Purpose purpose, int64 num_processes, const Company& company = {});

// FitError naming the largest buffer and the nearest configuration that fits, when the job's plan exceeds its budget.
void require_fit(const Job& job);

}  // namespace megatoken
