#include "ops/cuda/attention_graph.h"

#include <cudnn_frontend.h>

#include <list>
#include <map>

#include "base/error.h"
#include "base/log.h"

namespace megatoken::cuda {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

enum Role : int64 { kQ = 1, kK, kV, kO, kStats, kDOut, kDQ, kDK, kDV, kTrueQueries, kTrueKeys };

// Sums of a graph's steps and its statistics are float32; storage is bf16.
fe::graph::Tensor_attributes matrix(const char* name, Role role, int64 heads, int64 rows, int64 head_dim, int64 stride) {
  fe::graph::Tensor_attributes a;
  a.set_name(name).set_uid(role).set_dim({1, heads, rows, head_dim}).set_stride({rows * stride, head_dim, stride, 1});
  a.set_data_type(fe::DataType_t::BFLOAT16);
  return a;
}

fe::graph::Tensor_attributes statistics(const AttentionCall& c) {
  fe::graph::Tensor_attributes a;
  a.set_name("stats").set_uid(kStats).set_dim({1, c.heads, c.queries, 1}).set_stride({c.heads * c.queries, c.queries, 1, 1});
  a.set_data_type(fe::DataType_t::FLOAT);
  return a;
}

void set_output(const Tensor& tensor, const fe::graph::Tensor_attributes& wanted) {
  tensor->set_output(true).set_uid(wanted.get_uid()).set_dim(wanted.get_dim()).set_stride(wanted.get_stride());
  tensor->set_data_type(wanted.get_data_type());
}

Tensor length(fe::graph::Graph& graph, const char* name, Role role) {
  fe::graph::Tensor_attributes a;
  a.set_name(name).set_uid(role).set_dim({1, 1, 1, 1}).set_stride({1, 1, 1, 1}).set_data_type(fe::DataType_t::INT32);
  return graph.tensor(a);
}

template <typename Attributes>
void set_mask(fe::graph::Graph& graph, Attributes& a, const AttentionCall& c) {
  a.set_attn_scale(c.scale);
  if (c.lengths) {
    a.set_padding_mask(true).set_seq_len_q(length(graph, "true queries", kTrueQueries));
    a.set_seq_len_kv(length(graph, "true keys", kTrueKeys));
  }
  if (c.diagonal == Diagonal::none) return;
  a.set_diagonal_alignment(c.diagonal == Diagonal::top_left ? fe::DiagonalAlignment_t::TOP_LEFT
                                                            : fe::DiagonalAlignment_t::BOTTOM_RIGHT);
  a.set_diagonal_band_right_bound(0);
}

void describe_call(fe::graph::Graph& graph, const AttentionCall& c) {
  Tensor q = graph.tensor(matrix("q", kQ, c.heads, c.queries, c.head_dim, c.q_stride));
  Tensor k = graph.tensor(matrix("k", kK, c.kv_heads, c.keys, c.head_dim, c.k_stride));
  Tensor v = graph.tensor(matrix("v", kV, c.kv_heads, c.keys, c.head_dim, c.v_stride));
  const auto o_attributes = matrix("o", kO, c.heads, c.queries, c.head_dim, c.o_stride);
  if (!c.backward) {
    fe::graph::SDPA_attributes a;
    a.set_name("attention").set_generate_stats(true).set_implementation(fe::AttentionImplementation_t::COMPOSITE);
    set_mask(graph, a, c);
    auto [o, stats] = graph.sdpa(q, k, v, a);
    set_output(o, o_attributes);
    set_output(stats, statistics(c));
    return;
  }
  Tensor o = graph.tensor(o_attributes);
  Tensor dout = graph.tensor(matrix("dout", kDOut, c.heads, c.queries, c.head_dim, c.dout_stride));
  Tensor stats = graph.tensor(statistics(c));
  fe::graph::SDPA_backward_attributes a;
  a.set_name("attention backward");
  set_mask(graph, a, c);
  auto [dq, dk, dv] = graph.sdpa_backward(q, k, v, o, dout, stats, a);
  set_output(dq, matrix("dq", kDQ, c.heads, c.queries, c.head_dim, c.heads * c.head_dim));
  set_output(dk, matrix("dk", kDK, c.kv_heads, c.keys, c.head_dim, c.kv_heads * c.head_dim));
  set_output(dv, matrix("dv", kDV, c.kv_heads, c.keys, c.head_dim, c.kv_heads * c.head_dim));
}

std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n') c = ' ';
  return text.substr(0, 400);
}

struct Graph {
  AttentionCall call;
  fe::graph::Graph graph;
  int64 workspace_bytes = 0;
  std::string refusal;  // empty: usable

  // Each shape has a kernel of its own. With dynamic shapes cuDNN 9.19 takes a kernel that it has built for 2 query heads
  // for 8, and leaves 6 of them out.
  bool build(cudnnHandle_t handle) {
    graph.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    describe_call(graph, call);
    fe::error_t status = graph.validate();
    if (status.is_good()) status = graph.build_operation_graph(handle);
    if (status.is_good()) status = graph.create_execution_plans({fe::HeurMode_t::A});
    if (status.is_good()) status = graph.check_support();
    if (status.is_good()) status = graph.build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE);
    if (status.is_good()) status = graph.get_workspace_size(workspace_bytes);
    if (status.is_bad()) {
      refusal = one_line(status.err_msg);
      return false;
    }
    return true;
  }
};

// cuDNN's handle and the graphs of one stream.
class Graphs {
 public:
  explicit Graphs(CudaStream& stream) {
    require(fe::detail::create_handle(&handle_), "starting the library");
    require(fe::detail::set_stream(handle_, stream.native()), "setting the stream");
  }
  ~Graphs() {
    index_.clear();
    graphs_.clear();
    if (handle_ != nullptr) fe::detail::destroy_handle(handle_);
  }
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  bool run(const AttentionCall& call, const AttentionPointers& p, void* workspace) {
    Graph& g = find(call);
    if (!g.refusal.empty()) return false;
    std::unordered_map<fe::graph::Tensor_attributes::uid_t, void*> pack = {
        {kQ, p.q}, {kK, p.k}, {kV, p.v}, {kO, p.o}, {kStats, p.stats}};
    if (call.backward) pack.insert({{kDOut, p.dout}, {kDQ, p.dq}, {kDK, p.dk}, {kDV, p.dv}});
    if (call.lengths) pack.insert({{kTrueQueries, p.true_queries}, {kTrueKeys, p.true_keys}});
    const fe::error_t status = g.graph.execute(handle_, pack, workspace);
    if (status.is_bad()) throw TrainError("cuDNN: attention: {}", one_line(status.err_msg));
    return true;
  }

 private:
  static void require(cudnnStatus_t status, const char* what) {
    if (status != CUDNN_STATUS_SUCCESS) throw TrainError("cuDNN: {}: {}", what, fe::detail::get_error_string(status));
  }

  // Least recently used first.
  Graph& find(const AttentionCall& call) {
    if (const auto at = index_.find(call); at != index_.end()) {
      graphs_.splice(graphs_.end(), graphs_, at->second);
      return *at->second;
    }
    if (graphs_.size() >= kMostGraphs) {
      index_.erase(graphs_.front().call);
      graphs_.pop_front();
      if (++evicted_ == 1)
        log_warning("attention: more than {} shapes of attention blocks; each new one costs up to a second to compile",
                    kMostGraphs);
    }
    Graph& g = graphs_.emplace_back();
    g.call = call;
    const bool built = g.build(handle_);
    if (built && g.workspace_bytes > attention_library_bytes(call)) {
      const int64 wanted = g.workspace_bytes;
      graphs_.pop_back();
      throw FitError("cuDNN {} wants {} bytes of workspace for attention of {} x {} where {} were planned: use cuDNN 9.14 to 9.19",
                     fe::detail::get_backend_version(), wanted, call.queries, call.keys, attention_library_bytes(call));
    }
    if (!built)
      log_warning("attention: cuDNN refuses {} x {} with head_dim {}; a slow kernel takes its place ({})", call.queries,
                  call.keys, call.head_dim, g.refusal);
    index_[call] = std::prev(graphs_.end());
    return g;
  }

  static constexpr std::size_t kMostGraphs = 256;
  cudnnHandle_t handle_ = nullptr;
  std::list<Graph> graphs_;
  std::map<AttentionCall, std::list<Graph>::iterator> index_;
  int64 evicted_ = 0;
};

}  // namespace

bool run_attention(CudaStream& stream, const AttentionCall& call, const AttentionPointers& pointers, void* workspace) {
  return stream.attached<Graphs>().run(call, pointers, workspace);
}

}  // namespace megatoken::cuda
