// Brings the keys and values of one head group to the queries of this rank, and their gradients back to their owners.
// Keys and values travel side by side: rows of [K | V], kv_cols() each.
//
//   allgather: every rank's rows at once, one collective a half, issued one head group ahead of attention.
//   ring:      cp phases; the block of the next phase is received while this one is worked on. Gradients follow their
//              block around the ring one step behind, float32, and end at their owner.
//
// With cp = 1 nothing moves. Bytes sent per rank and head group, B = bytes of one rank's [K | V] rows in the storage type
// and F the same in float32: forward (cp-1) B; backward (cp-1) B + (cp-1) F for allgather, (cp-1) B + cp F for ring.
#pragma once

#include <functional>

#include "attention/sequence_part.h"
#include "step/step_ops.h"

namespace megatoken {

class KeyValueExchange {
 public:
  // lead: how many head groups are started before the first is used (0 or 1).
  KeyValueExchange(StepOps& ops, const SequencePart& part, const HeadShape& shape, DType dtype, int64 lead);

  // A buffer [rows, 2 * kv_cols] for this rank's keys and values of the next head group.
  Buffer local();

  struct Pending {
    Buffer local;
    Buffer gathered;
    Ticket ticket;
  };
  // Takes the filled buffer and begins the exchange; asynchronous on the exchange stream.
  Pending start(Buffer local);

  using ForwardVisit = std::function<void(const AttentionPhase&, const View& k, const View& v)>;
  void forward(Pending pending, const ForwardVisit& visit);

  using BackwardVisit =
      std::function<void(const AttentionPhase&, const View& k, const View& v, const View& dk, const View& dv)>;
  // Returns the gradient of this rank's own [K | V] rows, float32.
  Buffer backward(Pending pending, const BackwardVisit& visit);

 private:
  View half(const View& rows, int64 index, int64 ranks) const;
  Ticket rotate(std::string_view name, const View& from, const View& to);
  // Calls visit(phase, resident rows) for every phase of the ring.
  void ring_phases(Buffer own, const std::function<void(const AttentionPhase&, const View&)>& visit);
  Buffer backward_gathered(Pending pending, const BackwardVisit& visit);
  Buffer backward_ring(Pending pending, const BackwardVisit& visit);

  StepOps& ops_;
  const SequencePart& part_;
  HeadShape shape_;
  DType dtype_;
  Ring local_;
  Ring gathered_;
};

}  // namespace megatoken
