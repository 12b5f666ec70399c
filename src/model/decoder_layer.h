// One decoder layer: x + attention(norm(x)), then + mlp(norm(.)), forward and explicit backward. The loop nest is
// (head group, key block, token tile): nothing of rows x intermediate_size (or, of experts, rows x k) exists, and with head groups q, k, v and their
// gradients exist for one group at a time. Everything but x, the attention output and its log-sum-exp is recomputed in
// backward.
#pragma once

#include "attention/key_value_exchange.h"
#include "attention/sequence_part.h"
#include "model/parameters.h"
#include "model/sparse_mlp.h"
#include "spec/policy.h"
#include "step/step_ops.h"

namespace megatoken {

// Per-token inputs of rotary embedding, see ops/norm_rope.h.
struct TokenTables {
  View positions;          // [rows, 1] i32
  View frequency_index;    // [rows, 1] i32
  View inverse_frequency;  // [tables, head_dim / 2] f32
  float attention_factor = 1;
};

class DecoderLayer {
 public:
  DecoderLayer(StepOps& ops, const ModelSpec& spec, const Policy& policy, const SequencePart& part, DType dtype,
               const TokenTables& tables);

  // x [rows, H] -> o [rows, Nq * D] (before the output projection), lse [Nq, rows] f32.
  void forward_attention(const LayerViews& w, const View& x, const View& o, const View& lse);
  // Of a sparse layer: where its routing is, and whether it is still to be decided. Of a dense one: nothing.
  struct Experts {
    Routing routing;
    Balance balance;
    bool decided = false;
  };
  // out [rows, H] = y + mlp(norm(y)), y = x + o Wo^T. out may not be x.
  void forward_mlp(const LayerViews& w, const Experts& experts, const View& x, const View& o, const View& out);
  // dx [rows, H]: gradient of the layer's output on entry, of its input on return. Adds to g (float32).
  void backward(const LayerViews& w, const LayerViews& g, const Experts& experts, const View& x, const View& o,
                const View& lse, const View& dx);

 private:
  struct Group {  // views of one head group's weights or gradients
    View q, k, v, q_bias, k_bias, v_bias;
  };
  int64 token_tile() const;
  // After how many head groups the exchange's rings of two are as before.
  int64 group_period() const { return lead_ == 0 && (part_.layout.cp() == 1 || part_.layout.cp() % 2 == 0) ? 1 : 2; }
  int64 tiles() const;
  // The rows of tile t of a [rows, *] view.
  View tile(const View& rows, int64 t) const;
  TokenTables tile(const TokenTables& tables, int64 t) const;
  Group group(const LayerViews& w, int64 g) const;

  void linear(std::string_view name, const View& x, const View& weight, const View& bias, const View& y);
  // dweight += dy^T x, dbias += column sums of dy.
  void weight_gradient(std::string_view name, const View& dy, const View& x, const View& dweight, const View& dbias);
  void norm(std::string_view name, const View& x, const View& weight, const View& y);
  NormRope rope(const View& x, const View& weight, const View& y, const TokenTables& tables) const;

  // q and kv of head group g from x; either may be absent.
  void project(const LayerViews& w, int64 g, const View& x, const View& q, const View& kv);
  KeyValueExchange::Pending start_keys(KeyValueExchange& exchange, const LayerViews& w, int64 g, const View& x);
  Experts tile(const Experts& experts, int64 t) const;
  void up(const LayerViews& w, const View& h, const View& gate_up, const View& act);
  void forward_dense_mlp(const LayerViews& w, const View& h, const View& y);
  Buffer backward_dense_mlp(const LayerViews& w, const LayerViews& g, const View& h, const View& dout);
  void backward_mlp(const LayerViews& w, const LayerViews& g, const Experts& experts, const View& x, const View& o,
                    const View& dx);
  void backward_projection(const LayerViews& w, const LayerViews& grad, int64 g, const View& x, const View& dq,
                           const View& dkv, const View& dh_sum, const View& dx);
  void backward_input_norm(const LayerViews& w, const LayerViews& g, const View& x, const View& dh, const View& dx);

  StepOps& ops_;
  const ModelSpec& spec_;
  const Policy& policy_;
  const SequencePart& part_;
  DType dtype_;
  TokenTables tables_;
  HeadShape shape_;  // of one head group
  SparseMlp sparse_;
  int64 lead_;       // head groups whose keys are exchanged ahead of attention
};

}  // namespace megatoken
