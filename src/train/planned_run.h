// The plan of a run: the policy, and every program of a step (train micro-batch, evaluation, update) packed into one
// arena. Made on any machine for any mesh; `plan` prints it, training executes it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "parallel/sharded_parameters.h"
#include "plan/plan.h"
#include "plan/price.h"
#include "spec/machine.h"
#include "spec/mesh.h"
#include "spec/model_spec.h"
#include "spec/policy.h"
#include "spec/run_config.h"

namespace megatoken {

// What the largest step of a run looks like on every rank.
struct RunShape {
  ModelSpec model;
  Mesh mesh;
  DType dtype = DType::f32;
  bool on_cuda = false;
  std::vector<int64> train_documents;  // lengths of the documents of the largest micro-batch
  std::vector<int64> eval_documents;   // empty: no evaluation
  int64 micro_batches = 1;             // of an optimizer step
  int64 ranks_per_device = 1;          // threads of one process that share a GPU, and its context
};

// A lever that was engaged: what it is, why, and what it alone does to the plan.
struct Lever {
  std::string name;
  std::string reason;
  int64 saves_bytes = 0;  // of the device, or of the host where that is what was short
  double costs_s = 0;     // of an optimizer step
  std::string key;        // of the configuration, that pins it
};

struct PlanBudget {
  int64 device_bytes = 0;  // of this rank's share of a device
  int64 host_bytes = 0;    // of this rank's share of the host
  bool shared = false;     // the device's memory is the host's: the sum counts against host_bytes
};

struct PlannedBuffer {
  std::string name;
  Place place = Place::device;
  int64 bytes = 0;
  bool persistent = false;  // state, libraries: there all the time
};

struct PlannedRun {
  Policy policy;
  StatePlaces places;
  CountedStep train, evaluation, update;
  Plan train_plan, evaluation_plan, update_plan;
  PlaceBytes arena{};
  int64 state_bytes = 0;               // weights, gradients, optimizer state of one rank, on the device
  int64 host_state_bytes = 0;          // what of it lives in host memory
  int64 fixed_bytes = 0;               // libraries, context and scratch: this rank's share
  int64 host_fixed_bytes = 0;          // program, libraries and scratch of one rank, on the host
  std::vector<PlannedBuffer> buffers;  // state and every site, largest first
  std::vector<Lever> levers;
  StepPrice train_price;   // of one micro-batch
  double step_time_s = 0;  // predicted, of one optimizer step
  PlanBudget budget;
  int64 counted = 0;  // policies that were tried

  int64 device_bytes() const { return fixed_bytes + state_bytes + arena[static_cast<int>(Place::device)]; }
  int64 host_bytes() const { return host_fixed_bytes + host_state_bytes + arena[static_cast<int>(Place::host)]; }
  bool fits() const;
};

// Chooses the fastest policy (pins of `options` first) inside the budget, counts and packs. Does not throw when nothing
// fits: then it is the plan with every lever engaged, and fits() is false.
PlannedRun plan_run(const RunShape& shape, const PlannerOptions& options, const ParallelOptions& parallel,
                    const PlanBudget& budget, const MachineRates& rates);
// The plan of a given policy and places.
PlannedRun plan_policy(const RunShape& shape, const Policy& policy, const StatePlaces& places, const PlanBudget& budget,
                       const MachineRates& rates);
// The budget of one rank: pins of `options`, else the machine's, shared among the ranks of a host and of a device.
PlanBudget budget_of(const PlannerOptions& options, const Machine& machine, int64 ranks_per_host, bool on_cuda,
                     int64 ranks_per_device = 1);

// FitError naming the largest buffer at the peak, when the plan exceeds its budget. nearest: what would fit, said last;
// called only then.
void require_fit(const PlannedRun& plan, const std::function<std::string()>& nearest);

}  // namespace megatoken
