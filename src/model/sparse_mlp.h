// The MLP of a sparse layer on one tile of tokens: a router gives each token k experts; its rows are sorted by expert,
// pass the experts' matrices as grouped products and are summed up, weighted; a shared expert is added where the family
// has one. Shapes depend on the number of tokens alone (tokens x k rows): counts and offsets stay on the device.
#pragma once

#include "model/parameters.h"
#include "step/step_ops.h"

namespace megatoken {

// Which experts each token of a layer goes to, decided once in forward and kept for backward.
struct Routing {
  View experts;  // [rows, k] i32
  View weights;  // [rows, k] f32
};

// The load-balancing loss of a micro-batch (ops/router.h); absent views where it isn't asked for.
struct Balance {
  View counted;   // [rows, 1] u8
  View sums;      // [1, 2E] f64, forward adds to it
  View gradient;  // [1, E] f32, for backward
};

class SparseMlp {
 public:
  SparseMlp(StepOps& ops, const ModelSpec& spec, DType dtype) : ops_(ops), spec_(spec), dtype_(dtype) {}

  // Decides the routing of normalized rows h [n, H]: writes it, and adds to balance.sums.
  void route(const LayerViews& w, const View& h, const Routing& routing, const Balance& balance);
  // y [n, H] += mlp(h).
  void forward(const LayerViews& w, const View& h, const Routing& routing, const View& y);
  // Of dout [n, H], y's gradient: adds the weights' gradients to g, returns h's [n, H] f32.
  Buffer backward(const LayerViews& w, const LayerViews& g, const View& h, const Routing& routing,
                  const Balance& balance, const View& dout);

 private:
  struct Sorted;
  void grouped(std::string_view name, GroupedProduct product, const View& a, const View& b, const View& d,
               const View& offsets);
  void forward_shared(const LayerViews& w, const View& h, const View& y);
  void backward_router(const LayerViews& w, const LayerViews& g, const View& h, const Routing& routing,
                       const Balance& balance, const View& dweights, const View& dh);
  void backward_shared(const LayerViews& w, const LayerViews& g, const View& h, const View& dout, const View& dh);

  StepOps& ops_;
  const ModelSpec& spec_;
  DType dtype_;
};

}  // namespace megatoken
