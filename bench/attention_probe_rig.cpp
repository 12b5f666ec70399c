#include "attention_probe_rig.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <random>
#include <stdexcept>
#include <thread>

namespace megatoken::probe {

namespace {

constexpr int64_t kWideBytes = kWideRows * kWideColumns * 2;
constexpr int64_t kStatsCount = int64_t{8} << 20;
constexpr int64_t kScratchCount = int64_t{272} << 20;
// Columns of the slices in the wide matrices.
constexpr int64_t kQueryColumn = 1024;
constexpr int64_t kKeyColumn = 512;
constexpr int64_t kValueColumn = 2048;
constexpr int kMaxBatch = 64;

void* at(void* base, int64_t elements, Type type = Type::bf16) {
  return static_cast<char*>(base) + elements * (type == Type::bf16 ? 2 : 4);
}

const char* type_name(Type type) { return type == Type::bf16 ? "bf16" : "f32"; }

const char* mask_name(Mask mask) {
  return mask == Mask::full ? "full" : mask == Mask::causal_top_left ? "causal" : "bottom-right";
}

std::string json_text(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 32 ? ' ' : c;
  }
  return out + "\"";
}

// JSON has no NaN.
std::string json_number(double x) { return std::isfinite(x) ? fmt::format("{:.3e}", x) : "null"; }
std::string json(const Errors& e) { return fmt::format("[{}, {}]", json_number(e.norm), json_number(e.worst)); }

std::string json(const PassResult& p) {
  return fmt::format(
      R"({{"error": {}, "plan": {}, "workspace": {}, "median_ms": {:.4f}, "tflops": {:.1f}, "runs": {}, )"
      R"("build_s": [{:.4f}, {:.4f}, {:.4f}, {:.4f}, {:.4f}]}})",
      json_text(p.error), json_text(p.plan), p.workspace, p.median_ms, p.tflops, p.ms.size(), p.build.validate,
      p.build.lower, p.build.heuristics, p.build.support, p.build.plans);
}

std::string cell(const PassResult& p) {
  if (!p.error.empty()) return "refused: " + p.error.substr(0, 160);
  return fmt::format("{:9.3f} ms {:6.1f} TF ws {:8.3f} MiB build {:5.2f} s {}", p.median_ms, p.tflops,
                     static_cast<double>(p.workspace) / 1048576.0, p.build.total(), p.plan);
}

std::string layout_key(const Layout& l) { return fmt::format("{},{},{};", l.batch, l.head, l.row); }

std::string key_of(AttentionGraph::Pass pass, const Problem& p) {
  std::string key = fmt::format("{} {} {} {} {} {} {} {}|", pass == AttentionGraph::Pass::forward ? "f" : "b", p.batch,
                                p.query_heads, p.key_heads, p.queries, p.keys, mask_name(p.mask), p.lengths);
  for (const Layout* l : {&p.q, &p.k, &p.v, &p.o, &p.d_o, &p.dq, &p.dk, &p.dv}) key += layout_key(*l);
  return key + fmt::format("|{} {} {}{}{}{} {}{}{}", p.plan, p.window, type_name(p.o_type), type_name(p.d_o_type),
                           type_name(p.dq_type), type_name(p.dkv_type), p.ragged, p.deterministic, p.dynamic_shape);
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

double flops(const Shape& s, bool backward) {
  const double q = static_cast<double>(s.lengths && s.true_queries >= 0 ? s.true_queries : s.queries);
  const double k = static_cast<double>(s.lengths && s.true_keys >= 0 ? s.true_keys : s.keys);
  double pairs = s.mask == Mask::full ? q * k : q * (k - q) + q * (q + 1) / 2;
  if (s.mask == Mask::causal_top_left) pairs = q * (q + 1) / 2;  // square problems only
  const double w = static_cast<double>(s.window);
  if (s.window) pairs = s.mask == Mask::causal_top_left || k == q ? w * q - w * (w - 1) / 2 : std::min(w, k) * q;
  return pairs * static_cast<double>(s.group * s.key_heads) * kHeadDim * (backward ? 10.0 : 4.0);
}

std::vector<int64_t> sample(int64_t total, int64_t count, int64_t row_stride) {
  std::set<int64_t> rows;
  auto add = [&](int64_t r) {
    if (r >= 0 && r < total) rows.insert(r);
  };
  if (total <= count) {
    for (int64_t r = 0; r < total; ++r) add(r);
  } else {
    for (int64_t border : {int64_t{1} << 31, int64_t{1} << 32}) {
      for (int64_t d = -1; d <= 1; ++d) add(border / row_stride + d);
    }
    for (int64_t r : {int64_t{0}, int64_t{1}, total / 2, total - 2, total - 1}) add(r);
    std::mt19937_64 random(7);
    while (static_cast<int64_t>(rows.size()) < count) add(static_cast<int64_t>(random() % total));
  }
  return {rows.begin(), rows.end()};
}

Errors compare(const std::vector<float>& got, const std::vector<float>& want) {
  double diff = 0;
  double norm = 0;
  double worst = 0;
  for (size_t r = 0; r < want.size(); r += kHeadDim) {
    double d = 0;
    double n = 0;
    for (size_t i = r; i < r + kHeadDim; ++i) {
      const double e = static_cast<double>(got[i]) - want[i];
      d += e * e;
      n += static_cast<double>(want[i]) * want[i];
    }
    diff += d;
    norm += n;
    // A row whose exact value is zero (one visible key: dQ = dK = 0) has no relative error of its own.
    if (!std::isfinite(d)) worst = INFINITY;
    if (n > 1e-20) worst = std::max(worst, std::sqrt(d / n));
  }
  if (norm <= 1e-20) return {std::sqrt(diff), worst};
  return {std::sqrt(diff / norm), worst};
}

Rig::Rig(const Library& library, const std::string& out_file, double seconds)
    : library_(library), start_(std::chrono::steady_clock::now()), seconds_(seconds) {
  if (!out_file.empty()) {
    out_.open(out_file);
    if (!out_) throw std::runtime_error(out_file + ": cannot be written");
  }
  if (!library.has_device()) return;
  cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
  cuda_check(cudaEventCreate(&begin_), "event");
  cuda_check(cudaEventCreate(&end_), "event");
  library.set_stream(stream_);
  for (void** p : {&q_, &kv_, &d_o_, &o_, &dq_, &dkv_}) cuda_check(cudaMalloc(p, kWideBytes), "cudaMalloc of 8 GiB");
  cuda_check(cudaMalloc(&stats_, kStatsCount * sizeof(float)), "cudaMalloc");
  cuda_check(cudaMalloc(&scratch_, kScratchCount * sizeof(float)), "cudaMalloc");
  cuda_check(cudaMalloc(&lengths_, 2 * kMaxBatch * sizeof(int32_t)), "cudaMalloc");
  cuda_check(cudaMalloc(&offsets_, 3 * kMaxBatch * sizeof(int64_t)), "cudaMalloc");
  // Scores with a deviation of 2: among a million keys about 20,000 carry the weight.
  fill_normal(q_, kWideBytes / 2, 11, 2.0F, stream_);
  fill_normal(kv_, kWideBytes / 2, 12, 1.0F, stream_);
  fill_normal(d_o_, kWideBytes / 2, 13, 1.0F, stream_);
  cuda_check(cudaStreamSynchronize(stream_), "random data");
}

Rig::~Rig() {
  for (void* p : {q_, kv_, d_o_, o_, dq_, dkv_, static_cast<void*>(stats_), static_cast<void*>(scratch_),
                  static_cast<void*>(lengths_), static_cast<void*>(offsets_), workspace_}) {
    if (p) cudaFree(p);
  }
}

bool Rig::late() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count() > seconds_;
}

void Rig::say(const std::string& section, const std::string& text) {
  const double t = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  std::printf("[%6.1f] %s: %s\n", t, section.c_str(), text.c_str());
  std::fflush(stdout);
  if (out_.is_open()) {
    out_ << fmt::format("{{\"section\": {}, \"t\": {:.2f}, \"text\": {}}}\n", json_text(section), t, json_text(text))
         << std::flush;
  }
}

void* Rig::workspace(int64_t bytes) {
  if (bytes > workspace_bytes_) {
    if (workspace_) cuda_check(cudaFree(workspace_), "cudaFree");
    workspace_ = nullptr;
    cuda_check(cudaMalloc(&workspace_, bytes), "cudaMalloc of the workspace");
    workspace_bytes_ = bytes;
  }
  return workspace_;
}

void Rig::set_lengths(const std::vector<int32_t>& queries, const std::vector<int32_t>& keys) {
  const size_t bytes = queries.size() * sizeof(int32_t);
  cuda_check(cudaMemcpyAsync(lengths_, queries.data(), bytes, cudaMemcpyHostToDevice, stream_), "lengths");
  cuda_check(cudaMemcpyAsync(lengths_ + kMaxBatch, keys.data(), bytes, cudaMemcpyHostToDevice, stream_), "lengths");
  cuda_check(cudaStreamSynchronize(stream_), "lengths");
}

void* Rig::offsets(int which, const std::vector<int64_t>& values) {
  int64_t* to = offsets_ + which * kMaxBatch;
  cuda_check(cudaMemcpyAsync(to, values.data(), values.size() * sizeof(int64_t), cudaMemcpyHostToDevice, stream_),
             "offsets");
  cuda_check(cudaStreamSynchronize(stream_), "offsets");
  return to;
}

void Rig::poison() {
  for (void* p : {o_, dq_, dkv_}) cuda_check(cudaMemsetAsync(p, 0xFF, kWideBytes, stream_), "poison");
  cuda_check(cudaMemsetAsync(stats_, 0xFF, kStatsCount * sizeof(float), stream_), "poison");
  if (workspace_) cuda_check(cudaMemsetAsync(workspace_, 0xFF, workspace_bytes_, stream_), "poison");
}

Problem Rig::problem(const Shape& s) {
  Problem p;
  p.mask = s.mask;
  p.window = s.window;
  p.key_heads = s.key_heads;
  p.query_heads = s.fold ? 1 : s.group * s.key_heads;
  p.queries = s.fold ? s.queries * s.group : s.queries;
  p.keys = s.keys;
  p.o_type = s.o_type;
  p.d_o_type = s.d_o_type;
  p.dq_type = s.dq_type;
  p.dkv_type = s.dkv_type;
  p.deterministic = s.deterministic;
  p.dynamic_shape = s.dynamic_shape;
  p.plan = s.plan;
  p.lengths = s.lengths;
  auto layout = [&](Role role, int64_t rows, int64_t heads) {
    const int64_t row = s.wide && !s.narrow.count(role) ? kWideColumns : heads * kHeadDim;
    return Layout{rows * row, kHeadDim, row};
  };
  p.q = layout(kQ, p.queries, p.query_heads);
  p.o = layout(kO, p.queries, p.query_heads);
  p.d_o = layout(kDO, p.queries, p.query_heads);
  p.dq = layout(kDQ, p.queries, p.query_heads);
  p.k = layout(kK, p.keys, p.key_heads);
  p.v = layout(kV, p.keys, p.key_heads);
  p.dk = layout(kDK, p.keys, p.key_heads);
  p.dv = layout(kDV, p.keys, p.key_heads);
  return p;
}

std::map<int64_t, void*> Rig::tensors(const Shape& s, const Problem& p, bool second) const {
  std::map<int64_t, void*> t;
  // Contiguous keys sit in the first half of their matrix, values in the second.
  const int64_t half = kWideRows * kWideColumns / 2;
  const int64_t quarter = half / 2;
  const int64_t shift = second ? (s.dkv_type == Type::bf16 ? quarter : quarter / 2) : 0;
  const int64_t key_shift = s.dkv_type == Type::bf16 ? half : half / 2;
  auto place = [&](Role role, int64_t column, int64_t otherwise) {
    return s.wide && !s.narrow.count(role) ? column : otherwise;
  };
  t[kQ] = at(q_, place(kQ, kQueryColumn, 0));
  t[kK] = at(kv_, place(kK, kKeyColumn, 0));
  t[kV] = at(kv_, place(kV, kValueColumn, half));
  t[kO] = at(o_, place(kO, kQueryColumn, 0), p.o_type);
  t[kStats] = stats_;
  t[kDO] = at(d_o_, place(kDO, kQueryColumn, 0), p.d_o_type);
  t[kDQ] = at(dq_, second ? half / 2 : place(kDQ, kQueryColumn, 0), p.dq_type);
  t[kDK] = at(dkv_, place(kDK, kKeyColumn, shift), p.dkv_type);
  t[kDV] = at(dkv_, place(kDV, kValueColumn, key_shift + shift), p.dkv_type);
  t[kLengthQ] = lengths_;
  t[kLengthK] = lengths_ + kMaxBatch;
  return t;
}

std::vector<double> Rig::time(const std::function<void()>& call, int repeats) {
  std::vector<double> ms;
  for (int i = 0; i < repeats; ++i) {
    cuda_check(cudaEventRecord(begin_, stream_), "event");
    call();
    cuda_check(cudaEventRecord(end_, stream_), "event");
    cuda_check(cudaEventSynchronize(end_), "timed call");
    float one = 0;
    cuda_check(cudaEventElapsedTime(&one, begin_, end_), "event");
    ms.push_back(one);
  }
  return ms;
}

std::vector<double> Rig::time_for(const std::function<void()>& call, double seconds) {
  std::vector<double> ms;
  double total = 0;
  while (total < seconds * 1e3) {
    const std::vector<double> one = time(call, 1);
    total += one[0];
    ms.push_back(one[0]);
  }
  return {ms.end() - static_cast<int64_t>((ms.size() + 2) / 3), ms.end()};
}

std::shared_ptr<AttentionGraph> Rig::graph(AttentionGraph::Pass pass, const Problem& p) {
  std::shared_ptr<AttentionGraph>& slot = graphs_[key_of(pass, p)];
  if (!slot) slot = std::make_shared<AttentionGraph>(library_, pass, p);
  return slot;
}

void Rig::build_collected(int threads) {
  std::map<std::string, Key> missing;
  for (const Key& k : wanted_) {
    const std::string key = key_of(k.first, k.second);
    if (!graphs_.count(key)) missing.emplace(key, k);
  }
  wanted_.clear();
  std::vector<std::pair<std::string, Key>> work(missing.begin(), missing.end());
  std::vector<std::shared_ptr<AttentionGraph>> built(work.size());
  std::atomic<size_t> next{0};
  const size_t first = builders_.size();
  for (int i = 0; i < threads; ++i) builders_.push_back(std::make_unique<Library>(""));
  auto worker = [&](const Library* own) {
    for (size_t i = next++; i < work.size(); i = next++) {
      built[i] = std::make_shared<AttentionGraph>(*own, work[i].second.first, work[i].second.second);
    }
  };
  std::vector<std::thread> pool;
  for (int i = 0; i < threads; ++i) pool.emplace_back(worker, builders_[first + i].get());
  for (std::thread& t : pool) t.join();
  double serial = 0;
  for (size_t i = 0; i < work.size(); ++i) {
    serial += built[i]->seconds().total();
    graphs_[work[i].first] = built[i];
  }
  say("builds",
      fmt::format("{} graphs on {} threads; sum of their build times {:.1f} s", work.size(), threads, serial));
}

Result Rig::build(const Shape& shape) {
  Result r;
  r.shape = shape;
  const Problem p = problem(shape);
  for (bool backward : {false, true}) {
    const auto kept = graph(backward ? AttentionGraph::Pass::backward : AttentionGraph::Pass::forward, p);
    const AttentionGraph& graph = *kept;
    PassResult& pass = backward ? r.backward : r.forward;
    pass.error = graph.error();
    pass.plan = graph.plan();
    pass.build = graph.seconds();
    pass.workspace = graph.workspace_bytes();
  }
  print(r);
  return r;
}

Result Rig::run(const Shape& shape, const Options& options) {
  Result r;
  r.shape = shape;
  if (collecting_) {
    wanted_.emplace_back(AttentionGraph::Pass::forward, problem(shape));
    if (options.backward) wanted_.emplace_back(AttentionGraph::Pass::backward, problem(shape));
    return r;
  }
  if (late()) {
    r.note = "skipped: out of time";
    print(r);
    return r;
  }
  const Problem p = problem(shape);
  try {
    if (shape.lengths) {
      const int64_t fold = shape.fold ? shape.group : 1;
      const int64_t q = shape.true_queries < 0 ? shape.queries : shape.true_queries;
      const int64_t k = shape.true_keys < 0 ? shape.keys : shape.true_keys;
      set_lengths({static_cast<int32_t>(q * fold)}, {static_cast<int32_t>(k)});
    }
    const auto all = tensors(shape, p, false);
    for (bool backward : {false, true}) {
      if (backward && !options.backward) break;
      PassResult& pass = backward ? r.backward : r.forward;
      const auto kept = graph(backward ? AttentionGraph::Pass::backward : AttentionGraph::Pass::forward, p);
      const AttentionGraph& graph = *kept;
      pass.error = graph.error();
      pass.plan = graph.plan();
      pass.build = graph.seconds();
      pass.workspace = graph.workspace_bytes();
      if (!graph.built()) continue;
      void* space = workspace(pass.workspace);
      if (!backward && options.check_rows) poison();
      std::vector<Role> roles = backward ? std::vector<Role>{kQ, kK, kV, kO, kDO, kStats, kDQ, kDK, kDV}
                                         : std::vector<Role>{kQ, kK, kV, kO, kStats};
      if (p.lengths) roles.insert(roles.end(), {kLengthQ, kLengthK});
      std::map<int64_t, void*> used;
      for (Role role : roles) used[role] = all.at(role);
      auto call = [&] { graph.run(library_, used, space); };
      const std::vector<double> first = time(call, 1);
      if (options.sustain_s <= 0 && options.repeats == 0) {
        pass.ms = first;
      } else if (options.sustain_s > 0) {
        pass.ms = time_for(call, options.sustain_s);
      } else {
        pass.ms = time(call, options.repeats);
      }
      pass.median_ms = median(pass.ms);
      if (pass.median_ms > 0) pass.tflops = flops(shape, backward) / pass.median_ms / 1e9;
    }
    if (options.check_rows) check(shape, p, options, r);
  } catch (const std::exception& e) {
    r.note = std::string("failed: ") + e.what();
    cudaGetLastError();
  }
  print(r);
  return r;
}

void Rig::check(const Shape& s, const Problem& p, const Options& options, Result& r) {
  const auto t = tensors(s, p, false);
  const int64_t fold = s.fold ? s.group : 1;
  const bool cut = s.lengths && s.true_queries >= 0;
  Attention a;
  auto view = [](void* data, const Layout& layout, Type type) {
    return View{data, layout.row, layout.head, type == Type::f32};
  };
  a.q = view(t.at(kQ), p.q, Type::bf16);
  a.k = view(t.at(kK), p.k, Type::bf16);
  a.v = view(t.at(kV), p.v, Type::bf16);
  a.o = view(t.at(kO), p.o, p.o_type);
  a.d_o = view(t.at(kDO), p.d_o, p.d_o_type);
  a.stats = stats_;
  a.stats_head = p.queries;
  a.heads = p.query_heads;
  a.group = p.query_heads / p.key_heads;
  a.queries = cut ? s.true_queries * fold : p.queries;
  a.keys = s.lengths && s.true_keys >= 0 ? s.true_keys : p.keys;
  a.causal = s.mask != Mask::full;
  a.diagonal = s.mask == Mask::causal_bottom_right ? a.keys - a.queries : 0;
  a.window = s.window;
  a.scale = p.scale;
  const View dq = view(t.at(kDQ), p.dq, p.dq_type);
  const View dk = view(t.at(kDK), p.dk, p.dkv_type);
  const View dv = view(t.at(kDV), p.dv, p.dkv_type);
  if (cut) {
    // What a call leaves in the rows past the true lengths; everywhere when there is nothing to attend to.
    const bool empty = a.queries <= 0 || a.keys <= 0;
    auto past = [&](const char* name, const View& v, int64_t from, int64_t to, int64_t heads) {
      View rest = v;
      rest.data = static_cast<char*>(v.data) + from * v.row * (v.f32 ? 4 : 2);
      const Census c = census(rest, to - from, heads, stream_);
      r.note += fmt::format("{} {} of {}: {} zero, {} untouched, {} NaN; ", empty ? "all" : "past", name,
                            (to - from) * heads * kHeadDim, c.zero, c.poison, c.not_finite - c.poison);
    };
    past("o", a.o, empty ? 0 : a.queries, p.queries, a.heads);
    if (options.backward && r.backward.error.empty()) {
      past("dq", dq, empty ? 0 : a.queries, p.queries, a.heads);
      past("dk", dk, empty ? 0 : a.keys, p.keys, p.key_heads);
      past("dv", dv, empty ? 0 : a.keys, p.keys, p.key_heads);
    }
    if (empty) return;
  }
  int64_t count = options.check_rows;
  count = std::max<int64_t>(1, std::min(count, kScratchCount / (2 * a.heads * a.keys)));
  const std::vector<int64_t> rows = sample(a.queries, count, p.q.row);
  r.not_finite = 0;
  auto region = [&](const View& v, int64_t n, int64_t heads) {
    r.not_finite += census(v, n, heads, stream_).not_finite;
  };
  RowReference want = reference_rows(a, rows, scratch_, stream_);
  if (r.forward.error.empty()) {
    r.o = compare(gather(a.o, a.heads, rows, stream_), want.o);
    std::vector<float> lse(static_cast<size_t>(a.heads * p.queries));
    cuda_check(cudaMemcpyAsync(lse.data(), stats_, lse.size() * sizeof(float), cudaMemcpyDeviceToHost, stream_), "lse");
    cuda_check(cudaStreamSynchronize(stream_), "lse");
    r.lse = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      for (int64_t h = 0; h < a.heads; ++h) {
        const double d = std::abs(static_cast<double>(lse[h * p.queries + rows[i]]) - want.lse[i * a.heads + h]);
        r.lse = std::isfinite(d) ? std::max(r.lse, d) : INFINITY;
      }
    }
    region(a.o, a.queries, a.heads);
  }
  if (options.backward && r.forward.error.empty() && r.backward.error.empty()) {
    const std::vector<int64_t> keys = sample(a.keys, options.check_rows, p.k.row);
    const KeyReference key_want = reference_keys(a, keys, scratch_, stream_);
    r.dq = compare(gather(dq, a.heads, rows, stream_), want.dq);
    r.dk = compare(gather(dk, p.key_heads, keys, stream_), key_want.dk);
    r.dv = compare(gather(dv, p.key_heads, keys, stream_), key_want.dv);
    region(dq, a.queries, a.heads);
    region(dk, a.keys, p.key_heads);
    region(dv, a.keys, p.key_heads);
    // What the bytes of a buffer declared fp32 mean when they are read as packed bf16.
    auto as_bf16 = [&](const char* name, View v, int64_t heads, const std::vector<int64_t>& at_rows,
                       const std::vector<float>& wanted) {
      if (!v.f32) return;
      v.f32 = false;
      r.note +=
          fmt::format("{} read as bf16: {:.1e}; ", name, compare(gather(v, heads, at_rows, stream_), wanted).norm);
    };
    as_bf16("o", a.o, a.heads, rows, want.o);
    as_bf16("dq", dq, a.heads, rows, want.dq);
    as_bf16("dk", dk, p.key_heads, keys, key_want.dk);
    as_bf16("dv", dv, p.key_heads, keys, key_want.dv);
    if (s.wide) {
      // Which rows are wrong, if any: their first and last, and the error below and from 2^31 elements on.
      auto split = [&](const char* name, const View& v, int64_t row_stride, const std::vector<float>& wanted) {
        const std::vector<float> got = gather(v, a.heads, rows, stream_);
        const int64_t border = (int64_t{1} << 31) / row_stride;
        const int64_t per_row = a.heads * kHeadDim;
        std::vector<float> low, low_want, high, high_want;
        for (size_t i = 0; i < rows.size(); ++i) {
          const bool beyond = rows[i] >= border;
          std::vector<float>& g = beyond ? high : low;
          std::vector<float>& w = beyond ? high_want : low_want;
          g.insert(g.end(), got.begin() + i * per_row, got.begin() + (i + 1) * per_row);
          w.insert(w.end(), wanted.begin() + i * per_row, wanted.begin() + (i + 1) * per_row);
        }
        if (!high.empty()) {
          r.note += fmt::format("{} rows under {}: {:.1e}, from there: {:.1e}; ", name, border,
                                compare(low, low_want).norm, compare(high, high_want).norm);
        }
      };
      split("o", a.o, kWideColumns, want.o);
      split("dq", dq, kWideColumns, want.dq);
    }
    if (s.wide && s.narrow.empty()) {
      const int64_t all = kWideRows * kWideColumns;
      const View w_o{o_, kWideColumns, kHeadDim, false};
      const View w_dq{dq_, kWideColumns, kHeadDim, false};
      const View w_dkv{dkv_, kWideColumns, kHeadDim, false};
      const int64_t heads = kWideColumns / kHeadDim;
      const int64_t q_cells = p.queries * p.query_heads * kHeadDim;
      const int64_t k_cells = p.keys * p.key_heads * kHeadDim;
      r.strays = 0;
      r.strays += all - q_cells - census(w_o, kWideRows, heads, stream_).poison;
      r.strays += all - q_cells - census(w_dq, kWideRows, heads, stream_).poison;
      r.strays += all - 2 * k_cells - census(w_dkv, kWideRows, heads, stream_).poison;
    }
  }
}

void Rig::print(const Result& r) {
  const Shape& s = r.shape;
  std::string line = fmt::format("{:<28} h{} g{} {}x{} {}{}{} o:{} dq:{} dkv:{}", s.name, s.key_heads, s.group,
                                 s.queries, s.keys, mask_name(s.mask), s.wide ? " wide" : "", s.fold ? " fold" : "",
                                 type_name(s.o_type), type_name(s.dq_type), type_name(s.dkv_type));
  if (s.window) line += fmt::format(" window {}", s.window);
  if (s.dynamic_shape) line += " dynamic";
  if (s.plan >= 0) line += fmt::format(" plan {}", s.plan);
  if (s.lengths) line += fmt::format(" true {}x{}", s.true_queries, s.true_keys);
  if (r.forward.workspace >= 0 || !r.forward.error.empty()) line += "\n    forward  " + cell(r.forward);
  if (r.backward.workspace >= 0 || !r.backward.error.empty()) line += "\n    backward " + cell(r.backward);
  if (r.o.norm != -1) {
    line += fmt::format(
        "\n    o {:.1e}/{:.1e} lse {:.1e} dq {:.1e}/{:.1e} dk {:.1e}/{:.1e} dv {:.1e}/{:.1e} nan {} strays {}",
        r.o.norm, r.o.worst, r.lse, r.dq.norm, r.dq.worst, r.dk.norm, r.dk.worst, r.dv.norm, r.dv.worst, r.not_finite,
        r.strays);
  }
  if (!r.note.empty()) line += "\n    " + r.note;
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
  if (!out_.is_open()) return;
  out_
      << fmt::format(
             R"({{"name": {}, "key_heads": {}, "group": {}, "queries": {}, "keys": {}, "mask": "{}", "window": {}, "wide": {}, "fold": {}, )"
             R"("o": "{}", "d_o": "{}", "dq": "{}", "dkv": "{}", "deterministic": {}, "lengths": [{}, {}], )"
             R"("dynamic": {}, "forward": {}, "backward": {}, "o_error": {}, "lse_error": {}, "dq_error": {}, "dk_error": {}, )"
             R"("dv_error": {}, "not_finite": {}, "strays": {}, "note": {}}})",
             json_text(s.name), s.key_heads, s.group, s.queries, s.keys, mask_name(s.mask), s.window, s.wide, s.fold,
             type_name(s.o_type), type_name(s.d_o_type), type_name(s.dq_type), type_name(s.dkv_type), s.deterministic,
             s.true_queries, s.true_keys, s.dynamic_shape, json(r.forward), json(r.backward), json(r.o),
             json_number(r.lse), json(r.dq), json(r.dk), json(r.dv), r.not_finite, r.strays, json_text(r.note))
      << "\n"
      << std::flush;
}

}  // namespace megatoken::probe
