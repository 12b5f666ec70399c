#include "attention_probe_graph.h"

#include <cudnn_frontend.h>
#include <chrono>
#include <stdexcept>

namespace megatoken::probe {

namespace fe = cudnn_frontend;
using Clock = std::chrono::steady_clock;

struct Library::State {
  cudnnHandle_t handle = nullptr;
  std::shared_ptr<fe::DeviceProperties> device;
  std::shared_ptr<fe::KernelCache> kernels;
};

struct AttentionGraph::State {
  fe::graph::Graph graph;
};

namespace {

void require(const fe::error_t& status, const std::string& what) {
  if (status.is_bad()) throw std::runtime_error(what + ": " + status.err_msg);
}

void require(cudnnStatus_t status, const std::string& what) {
  if (status != CUDNN_STATUS_SUCCESS) throw std::runtime_error(what + ": " + fe::detail::get_error_string(status));
}

fe::DataType_t data_type(Type type) { return type == Type::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::FLOAT; }

using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

std::vector<int64_t> dims(const Problem& p, bool query) {
  return {p.batch, query ? p.query_heads : p.key_heads, query ? p.queries : p.keys, p.head_dim};
}

std::vector<int64_t> strides(const Layout& layout) { return {layout.batch, layout.head, layout.row, 1}; }

fe::graph::Tensor_attributes attributes(const char* name, Role uid, const std::vector<int64_t>& dim,
                                        const std::vector<int64_t>& stride, fe::DataType_t type) {
  fe::graph::Tensor_attributes a;
  a.set_name(name).set_uid(uid).set_dim(dim).set_stride(stride).set_data_type(type);
  return a;
}

Tensor index_tensor(fe::graph::Graph& graph, const char* name, Role uid, int64_t n, fe::DataType_t type) {
  return graph.tensor(attributes(name, uid, {n, 1, 1, 1}, {1, 1, 1, 1}, type));
}

struct Shared {
  Tensor q, k, v, length_q, length_k, offset_q, offset_k, offset_stats;
};

Shared add_inputs(fe::graph::Graph& graph, const Problem& p) {
  Shared s;
  s.q = graph.tensor(attributes("q", kQ, dims(p, true), strides(p.q), fe::DataType_t::BFLOAT16));
  s.k = graph.tensor(attributes("k", kK, dims(p, false), strides(p.k), fe::DataType_t::BFLOAT16));
  s.v = graph.tensor(attributes("v", kV, dims(p, false), strides(p.v), fe::DataType_t::BFLOAT16));
  if (p.lengths || p.ragged) {
    s.length_q = index_tensor(graph, "length_q", kLengthQ, p.batch, fe::DataType_t::INT32);
    s.length_k = index_tensor(graph, "length_k", kLengthK, p.batch, fe::DataType_t::INT32);
  }
  if (p.ragged) {
    s.offset_q = index_tensor(graph, "offset_q", kOffsetQ, p.batch + 1, fe::DataType_t::INT64);
    s.offset_k = index_tensor(graph, "offset_k", kOffsetK, p.batch + 1, fe::DataType_t::INT64);
    s.offset_stats = index_tensor(graph, "offset_stats", kOffsetStats, p.batch + 1, fe::DataType_t::INT64);
    s.q->set_ragged_offset(s.offset_q);
    s.k->set_ragged_offset(s.offset_k);
    s.v->set_ragged_offset(s.offset_k);
  }
  return s;
}

// fp32, natural logarithm, packed [batch, head, row]; packed [row, head] over all batches when ragged.
fe::graph::Tensor_attributes stats_attributes(const Problem& p) {
  const std::vector<int64_t> dim = {p.batch, p.query_heads, p.queries, 1};
  const std::vector<int64_t> stride = p.ragged ? std::vector<int64_t>{p.queries * p.query_heads, 1, p.query_heads, 1}
                                               : std::vector<int64_t>{p.query_heads * p.queries, p.queries, 1, 1};
  return attributes("stats", kStats, dim, stride, fe::DataType_t::FLOAT);
}

template <class Attributes>
void set_common(Attributes& a, const Problem& p, const Shared& s) {
  a.set_attn_scale(p.scale);
  if (p.mask != Mask::full) {
    a.set_diagonal_alignment(p.mask == Mask::causal_top_left ? fe::DiagonalAlignment_t::TOP_LEFT
                                                             : fe::DiagonalAlignment_t::BOTTOM_RIGHT);
    a.set_diagonal_band_right_bound(0);
    if (p.window > 0) a.set_diagonal_band_left_bound(static_cast<int>(p.window));
  }
  if (p.lengths || p.ragged) a.set_padding_mask(true).set_seq_len_q(s.length_q).set_seq_len_kv(s.length_k);
}

void add_forward(fe::graph::Graph& graph, const Problem& p) {
  const Shared s = add_inputs(graph, p);
  fe::graph::SDPA_attributes a;
  // The composite node: the only one that takes an fp32 o in cuDNN 9.19.
  a.set_name("attention").set_generate_stats(true).set_implementation(fe::AttentionImplementation_t::COMPOSITE);
  set_common(a, p, s);
  auto [o, stats] = graph.sdpa(s.q, s.k, s.v, a);
  o->set_output(true).set_uid(kO).set_dim(dims(p, true)).set_stride(strides(p.o)).set_data_type(data_type(p.o_type));
  const fe::graph::Tensor_attributes wanted = stats_attributes(p);
  stats->set_output(true).set_uid(kStats).set_dim(wanted.get_dim()).set_stride(wanted.get_stride());
  stats->set_data_type(fe::DataType_t::FLOAT);
  if (p.ragged) {
    o->set_ragged_offset(s.offset_q);
    stats->set_ragged_offset(s.offset_stats);
  }
}

void add_backward(fe::graph::Graph& graph, const Problem& p) {
  const Shared s = add_inputs(graph, p);
  Tensor o = graph.tensor(attributes("o", kO, dims(p, true), strides(p.o), data_type(p.o_type)));
  Tensor d_o = graph.tensor(attributes("d_o", kDO, dims(p, true), strides(p.d_o), data_type(p.d_o_type)));
  Tensor stats = graph.tensor(stats_attributes(p));
  fe::graph::SDPA_backward_attributes a;
  a.set_name("attention_backward").set_deterministic_algorithm(p.deterministic);
  set_common(a, p, s);
  if (p.ragged) {
    o->set_ragged_offset(s.offset_q);
    d_o->set_ragged_offset(s.offset_q);
    stats->set_ragged_offset(s.offset_stats);
    a.set_max_total_seq_len_q(p.total_queries).set_max_total_seq_len_kv(p.total_keys);
  }
  auto [dq, dk, dv] = graph.sdpa_backward(s.q, s.k, s.v, o, d_o, stats, a);
  dq->set_output(true)
      .set_uid(kDQ)
      .set_dim(dims(p, true))
      .set_stride(strides(p.dq))
      .set_data_type(data_type(p.dq_type));
  for (auto [tensor, uid, layout] : {std::tuple{dk, kDK, &p.dk}, std::tuple{dv, kDV, &p.dv}}) {
    tensor->set_output(true).set_uid(uid).set_dim(dims(p, false)).set_stride(strides(*layout));
    tensor->set_data_type(data_type(p.dkv_type));
  }
  if (p.ragged) {
    dq->set_ragged_offset(s.offset_q);
    dk->set_ragged_offset(s.offset_k);
    dv->set_ragged_offset(s.offset_k);
  }
}

}  // namespace

Library::Library(const std::string& device_description) : state_(std::make_unique<State>()) {
  open_cudnn();
  if (device_description.empty()) {
    require(fe::detail::create_handle(&state_->handle), "cudnnCreate");
  } else {
    state_->device = std::make_shared<fe::DeviceProperties>();
    require(state_->device->deserialize({device_description.begin(), device_description.end()}), "device description");
  }
  state_->kernels = std::make_shared<fe::KernelCache>();
}

Library::~Library() {
  state_->kernels.reset();
  if (state_->handle) fe::detail::destroy_handle(state_->handle);
}

int64_t Library::version() const { return static_cast<int64_t>(fe::detail::get_backend_version()); }
bool Library::has_device() const { return state_->handle != nullptr; }

void Library::set_stream(void* stream) const {
  require(fe::detail::set_stream(state_->handle, static_cast<cudaStream_t>(stream)), "cudnnSetStream");
}

std::string Library::describe_device() const {
  fe::DeviceProperties properties;
  int device = 0;
  require(fe::detail::cuda_get_device(&device) == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR,
          "cudaGetDevice");
  properties.set_device_id(device);
  require(properties.build(), "device properties");
  std::vector<uint8_t> bytes;
  require(properties.serialize(bytes), "device properties as JSON");
  return {bytes.begin(), bytes.end()};
}

AttentionGraph::AttentionGraph(const Library& library, Pass pass, const Problem& p)
    : state_(std::make_unique<State>()) {
  fe::graph::Graph& graph = state_->graph;
  Library::State& lib = library.state();
  graph.set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  // Given here, because a graph for a described device has no device to ask.
  if (lib.device) graph.set_sm_version(90);
  if (lib.device) graph.set_device_properties(lib.device);
  if (p.dynamic_shape) graph.set_dynamic_shape_enabled(true).set_kernel_cache(lib.kernels);
  try {
    if (pass == Pass::forward) {
      add_forward(graph, p);
    } else {
      add_backward(graph, p);
    }
    auto stage = [&](const char* name, double& seconds, auto&& call) {
      const auto start = Clock::now();
      const fe::error_t status = call();
      seconds = std::chrono::duration<double>(Clock::now() - start).count();
      if (status.is_bad()) throw std::runtime_error(std::string(name) + ": " + status.err_msg);
    };
    stage("validate", seconds_.validate, [&] { return graph.validate(); });
    stage("lower", seconds_.lower, [&] { return graph.build_operation_graph(lib.handle); });
    std::vector<fe::HeurMode_t> modes = {fe::HeurMode_t::A};
    if (p.plan >= 0) modes = {fe::HeurMode_t::A, fe::HeurMode_t::B, fe::HeurMode_t::FALLBACK};
    stage("heuristics", seconds_.heuristics, [&] { return graph.create_execution_plans(modes); });
    stage("support", seconds_.support, [&] { return graph.check_support(); });
    plans_on_offer_ = graph.get_execution_plan_count();
    plan_index_ = p.plan;
    if (p.plan < 0) {
      stage("plans", seconds_.plans, [&] { return graph.build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE); });
      require(graph.get_workspace_size(workspace_), "workspace");
      require(graph.get_plan_name(plan_), "plan name");
    } else {
      if (p.plan >= plans_on_offer_) throw std::runtime_error("no such plan");
      require(graph.get_plan_name_at_index(p.plan, plan_), "plan name");
      stage("plans", seconds_.plans, [&] { return graph.build_plan_at_index(p.plan); });
      require(graph.get_workspace_size_plan_at_index(p.plan, workspace_), "workspace");
    }
    frontend_workspace_ = pass == Pass::backward ? frontend_backward_bytes(p) : 0;
  } catch (const std::exception& e) {
    error_ = e.what();
    for (char& c : error_) {
      if (c == '\n') c = ' ';
    }
    if (error_.empty()) error_ = "unknown";
  }
}

AttentionGraph::~AttentionGraph() = default;
AttentionGraph::AttentionGraph(AttentionGraph&&) noexcept = default;
AttentionGraph& AttentionGraph::operator=(AttentionGraph&&) noexcept = default;

void AttentionGraph::run(const Library& library, const std::map<int64_t, void*>& tensors, void* workspace) const {
  std::unordered_map<int64_t, void*> pack(tensors.begin(), tensors.end());
  cudnnHandle_t handle = library.state().handle;
  require(plan_index_ < 0 ? state_->graph.execute(handle, pack, workspace)
                          : state_->graph.execute_plan_at_index(handle, pack, workspace, plan_index_),
          "execute");
}

int64_t frontend_backward_bytes(const Problem& p) {
  const int64_t rows = p.batch * p.query_heads * p.queries;
  return p.deterministic ? rows * 4 : rows * (p.head_dim + 1) * 4;
}

}  // namespace megatoken::probe
