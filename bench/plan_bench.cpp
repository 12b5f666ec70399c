// How long planning takes: the rows of the reference's table, on a described H200 machine. No GPU is needed.
// Usage: plan_bench MODELS_DIR [REPEATS]   MODELS_DIR: bench/models
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "train/machine_rates.h"
#include "train/planned_run.h"
#include "train/planner/search.h"

using namespace megatoken;

namespace {

constexpr int64 kGiB = int64{1} << 30;

struct Row {
  const char* model;
  int64 tokens, ranks, device_gib, host_gib;
};
constexpr Row kRows[] = {{"qwen3-0.6b", 1 << 20, 8, 8, 1862},  {"qwen3-8b", 1 << 20, 8, 18, 1862},
                         {"qwen3-32b", 1 << 20, 8, 60, 1862},  {"qwen3-32b", 1 << 20, 8, 24, 1862},
                         {"qwen3-0.6b", 1 << 22, 8, 24, 1862}, {"qwen3-8b", 1 << 21, 16, 20, 1862},
                         {"qwen3-8b", 1 << 22, 32, 24, 1862},  {"qwen3-0.6b", 1 << 17, 1, 11, 120},
                         {"qwen3-0.6b", 1 << 20, 1, 78, 120},  {"qwen3-8b", 1 << 17, 1, 139, 120}};

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string models = argc > 1 ? argv[1] : "bench/models";
  const int repeats = argc > 2 ? std::stoi(argv[2]) : 3;
  for (const Row& row : kRows) {
    RunShape shape;
    shape.model = ModelSpec::from_directory(models + "/" + row.model);
    shape.mesh.cp = row.ranks;
    shape.dtype = DType::bf16;
    shape.on_cuda = true;
    shape.train_documents = {row.tokens};
    const PlanBudget budget{row.device_gib * kGiB, row.host_gib * kGiB / std::min<int64>(row.ranks, 8), false};
    const MachineRates rates = default_rates(true, 1);
    double least = 1e9;
    PlannedRun plan;
    for (int i = 0; i < repeats; ++i) {
      const double begin = now_ms();
      plan = plan_run(shape, {}, {}, budget, rates);
      least = std::min(least, now_ms() - begin);
    }
    StepCounts counts(shape, rates);
    counts.count({plan.policy, plan.places});
    const double begin = now_ms();
    counts.count({plan.policy, plan.places});
    const double count_ms = now_ms() - begin;
    fmt::print(
        "{:<11} {:>8} tokens {:>2} ranks {:>3} GiB: {:6.1f} ms ({} counts; the last one {:.1f} ms, {} events), {}, "
        "{:.2f} s\n",
        row.model, row.tokens, row.ranks, row.device_gib, least, plan.counted, count_ms, plan.train.events.size(),
        plan.fits() ? "fits" : "does not fit", plan.step_time_s);
  }
}
