// One attention call of the trainer as a cuDNN graph: what is offered, what it costs to build, how much workspace it
// takes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace megatoken::probe {

enum class Mask { full, causal_top_left, causal_bottom_right };
enum class Type { bf16, f32 };

// Strides in elements of a [batch, head, row, head_dim] tensor whose last dimension is contiguous.
struct Layout {
  int64_t batch = 0;
  int64_t head = 0;
  int64_t row = 0;
};

// A call: softmax(scale * q k^T + mask) v for query_heads that share key_heads (query_heads % key_heads == 0).
struct Problem {
  int64_t batch = 1;
  int64_t query_heads = 1;
  int64_t key_heads = 1;
  int64_t queries = 0;
  int64_t keys = 0;
  int64_t head_dim = 128;
  Mask mask = Mask::full;
  int64_t window = 0;           // keys that a row sees at most, itself included; 0: no limit
  float scale = 0.0883883476F;  // 1 / sqrt(128)
  Layout q, k, v, o, d_o, dq, dk, dv;
  Type o_type = Type::bf16;    // output of the forward graph, input of the backward graph
  Type d_o_type = Type::bf16;  // gradient that comes in
  Type dq_type = Type::bf16;
  Type dkv_type = Type::bf16;
  bool lengths = false;       // the true lengths come in two int32 tensors [batch] (cuDNN's padding mask)
  bool ragged = false;        // rows of all batches are packed; offsets come in int64 tensors [batch + 1], in elements
  int64_t total_queries = 0;  // ragged: all rows of all batches, at most
  int64_t total_keys = 0;
  bool deterministic = false;
  int64_t plan = -1;           // which of the plans on offer; -1: the library's own choice
  bool dynamic_shape = false;  // with the library's kernel cache, so that a second shape can reuse kernels
};

// Tensors by role; also their identifiers inside the graph.
enum Role : int64_t {
  kQ = 1,
  kK,
  kV,
  kO,
  kStats,
  kDO,
  kDQ,
  kDK,
  kDV,
  kLengthQ,
  kLengthK,
  kOffsetQ,
  kOffsetK,
  kOffsetStats
};

struct BuildSeconds {
  double validate = 0;
  double lower = 0;
  double heuristics = 0;
  double support = 0;
  double plans = 0;
  double total() const { return validate + lower + heuristics + support + plans; }
};

// Opens cuDNN 9 once for the process. Throws std::runtime_error when it is not there.
void open_cudnn();

// cuDNN opened at run time. With a description of a device (JSON, as cuDNN writes it) instead of the device itself,
// graphs can be built but not run.
class Library {
 public:
  explicit Library(const std::string& device_description);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  int64_t version() const;
  bool has_device() const;
  std::string describe_device() const;  // JSON that the constructor takes
  void set_stream(void* stream) const;

  struct State;
  State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

class AttentionGraph {
 public:
  enum class Pass { forward, backward };
  // Never throws for a graph that cuDNN refuses: error() then says why.
  AttentionGraph(const Library& library, Pass pass, const Problem& problem);
  ~AttentionGraph();
  AttentionGraph(AttentionGraph&&) noexcept;
  AttentionGraph& operator=(AttentionGraph&&) noexcept;

  bool built() const { return error_.empty(); }
  const std::string& error() const { return error_; }  // "stage: message"
  int64_t workspace_bytes() const { return workspace_; }
  int64_t frontend_workspace_bytes() const { return frontend_workspace_; }
  const BuildSeconds& seconds() const { return seconds_; }
  const std::string& plan() const { return plan_; }
  int64_t plans_on_offer() const { return plans_on_offer_; }

  // Asynchronous on the library's stream; the library may be another than the one that built the graph. Throws
  // std::runtime_error when cuDNN refuses.
  void run(const Library& library, const std::map<int64_t, void*>& tensors, void* workspace) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::string error_;
  int64_t workspace_ = 0;
  int64_t frontend_workspace_ = 0;
  BuildSeconds seconds_;
  std::string plan_;
  int64_t plan_index_ = -1;
  int64_t plans_on_offer_ = 0;
};

// Bytes of the backward pass that the frontend itself places in the workspace: fp32 dQ and rowsum(dO * O)
// (cudnn-frontend 1.32, CompositeSDPABackwardNode::get_fe_workspace_size_node).
int64_t frontend_backward_bytes(const Problem& problem);

}  // namespace megatoken::probe
