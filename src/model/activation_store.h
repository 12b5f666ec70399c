// Where each layer's input and attention output wait between forward and backward: on the device, in host memory (copied
// out behind the layer and fetched ahead of its backward), or nowhere (recomputed).
#pragma once

#include <vector>

#include "spec/model_spec.h"
#include "spec/policy.h"
#include "step/step_ops.h"

namespace megatoken {

// A run of layers of one kind, treated alike.
struct LayerRun {
  int64 first = 0;
  int64 count = 0;
  Keep input = Keep::device;
  Keep output = Keep::device;
  bool sparse = false;
};
std::vector<LayerRun> layer_runs(const Policy& policy, const ModelSpec& spec);

class ActivationStore {
 public:
  // keep: false for evaluation, where nothing outlives its layer.
  ActivationStore(StepOps& ops, const ModelSpec& spec, const Policy& policy, int64 rows, DType dtype, bool keep);

  // A piece of state and, where it is temporary, the buffers that hold it.
  struct Held {
    View view;       // layer input [rows, H], or attention output [rows, Nq * D]
    View lse;        // with attention outputs: [Nq, rows] f32
    Buffer buffer;
    Buffer lse_buffer;
    Ticket ticket;   // a fetch under way
  };

  // Forward. The place layer i's input (its attention output) is to be written to; i = num_layers: the last hidden state.
  Held input(int64 layer);
  Held output(int64 layer);
  // Sends it to the host where the policy says so; asynchronous.
  void keep_input(int64 layer, const Held& held);
  void keep_output(int64 layer, const Held& held);
  // After the last layer: no more outputs to come.
  void end_outputs();
  // Between forward and backward: the forward's temporaries have ended, the fetch buffers begin.
  void turn();

  // Backward. Begins bringing kept state back (nothing to do when it is on the device), then compute waits for it.
  // An output that is recomputed comes back with an absent view; recomputed_output() is a place to write it to.
  Held fetch_input(int64 layer);
  Held fetch_output(int64 layer);
  Held recomputed_output();
  void wait(const Held& held);

 private:
  Keep input_policy(int64 layer) const;
  Keep output_policy(int64 layer) const;

  StepOps& ops_;
  const Policy& policy_;
  std::vector<Keep> input_policy_;  // by layer
  int64 num_layers_, rows_, hidden_, query_cols_, heads_;
  DType dtype_;
  bool keep_;
  std::vector<int64> input_slot_, output_slot_;  // index among the layers kept at the same place
  Array device_inputs_, host_inputs_, device_outputs_, host_outputs_, device_lse_, host_lse_;
  Ring input_ring_, output_ring_, lse_ring_;
  Ticket last_to_host_;
};

}  // namespace megatoken
