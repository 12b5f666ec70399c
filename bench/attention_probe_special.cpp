// The questions that need more than one shape run once: repetition, packed documents, reuse of kernels.
#include <fmt/format.h>

#include <algorithm>

#include "attention_probe_sections.h"

namespace megatoken::probe {

namespace {

constexpr int64_t K = 1024;
using Pass = AttentionGraph::Pass;

std::map<int64_t, void*> pick(const std::map<int64_t, void*>& all, std::initializer_list<Role> roles) {
  std::map<int64_t, void*> used;
  for (Role role : roles) used[role] = all.at(role);
  return used;
}

std::string sentence(const char* name, const Difference& d, int64_t count) {
  return fmt::format(" {}: {} of {} differ, largest {:.1e} of {:.1e};", name, d.unequal, count, d.largest,
                     d.largest_value);
}

void repeat_backward(Rig& rig, const Shape& s, bool only_build) {
  const Problem p = Rig::problem(s);
  const auto kept_forward = rig.graph(Pass::forward, p);
  const auto kept_backward = rig.graph(Pass::backward, p);
  const AttentionGraph& forward = *kept_forward;
  const AttentionGraph& backward = *kept_backward;
  std::string text = fmt::format("{} g{} {}x{}{}{}: workspace {:.3f} GiB", s.name, s.group, s.queries, s.keys,
                                 s.mask == Mask::full ? " full" : " causal", s.fold ? " fold" : "",
                                 static_cast<double>(backward.workspace_bytes()) / 1073741824.0);
  if (!forward.built() || !backward.built()) {
    rig.say("determinism", text + " refused: " + forward.error() + backward.error());
    return;
  }
  if (only_build) {
    rig.say("determinism", text + " " + backward.plan() + " (not run)");
    return;
  }
  const auto first = rig.tensors(s, p, false);
  const auto second = rig.tensors(s, p, true);
  void* space = rig.workspace(std::max(forward.workspace_bytes(), backward.workspace_bytes()));
  forward.run(rig.library(), pick(first, {kQ, kK, kV, kO, kStats}), space);
  const auto roles = {kQ, kK, kV, kO, kDO, kStats, kDQ, kDK, kDV};
  auto out = pick(first, roles);
  backward.run(rig.library(), out, space);
  const double ms = median(rig.time([&] { backward.run(rig.library(), out, space); }, 3));
  for (Role role : {kDQ, kDK, kDV}) out[role] = second.at(role);
  backward.run(rig.library(), out, space);
  cuda_check(cudaStreamSynchronize(rig.stream()), "backward");
  const int64_t nq = s.queries * s.group * kHeadDim;
  const int64_t nk = s.keys * kHeadDim;
  text += fmt::format(" {:.3f} ms {:.1f} TF {}", ms, flops(s, true) / ms / 1e9, backward.plan());
  const bool q32 = p.dq_type == Type::f32;
  const bool k32 = p.dkv_type == Type::f32;
  text += sentence("dq", difference(first.at(kDQ), second.at(kDQ), nq, q32, rig.stream()), nq);
  text += sentence("dk", difference(first.at(kDK), second.at(kDK), nk, k32, rig.stream()), nk);
  text += sentence("dv", difference(first.at(kDV), second.at(kDV), nk, k32, rig.stream()), nk);
  rig.say("determinism", text);
}

}  // namespace

void run_determinism(Rig& rig) {
  if (rig.collecting()) return;
  Shape s{.name = "as is", .group = 8, .queries = 64 * K, .keys = 128 * K};
  repeat_backward(rig, s, false);
  Shape f = s;
  f.fold = true;
  repeat_backward(rig, f, false);
  Shape c{.name = "as is", .group = 8, .queries = 64 * K, .keys = 64 * K, .mask = Mask::causal_top_left};
  repeat_backward(rig, c, false);
  Shape d{.name = "deterministic", .group = 4, .queries = 16 * K, .keys = 16 * K, .deterministic = true};
  repeat_backward(rig, d, false);
  d.name = "as is";
  d.deterministic = false;
  repeat_backward(rig, d, false);
  s.name = "deterministic";
  s.deterministic = true;
  repeat_backward(rig, s, true);
}

void run_blocks(Rig& rig) {
  if (rig.collecting()) return;
  const Shape s{.name = "blocks", .group = 8, .queries = 16 * K, .keys = 64 * K, .fold = true};
  const Problem p = Rig::problem(s);
  const auto forward = rig.graph(Pass::forward, p);
  const auto backward = rig.graph(Pass::backward, p);
  if (!forward->built() || !backward->built()) {
    rig.say("blocks", "refused: " + forward->error() + backward->error());
    return;
  }
  void* space = rig.workspace(std::max(forward->workspace_bytes(), backward->workspace_bytes()));
  rig.poison();
  auto from = [](void* base, int64_t elements) { return static_cast<void*>(static_cast<char*>(base) + 2 * elements); };
  constexpr int64_t kBlocks = 3;
  const int64_t block = s.keys * kHeadDim;
  const int64_t rows = p.queries;
  const auto base = rig.tensors(s, p, false);
  auto part = [&](int64_t b) {
    auto t = base;
    for (Role role : {kK, kV, kDK, kDV}) t[role] = from(base.at(role), b * block);
    t[kDQ] = from(base.at(kDQ), b * rows * kHeadDim);
    return t;
  };
  for (int64_t b = 0; b < kBlocks; ++b) {
    auto t = part(b);
    if (b > 0) {
      t[kO] = from(base.at(kO), rows * kHeadDim);
      t[kStats] = rig.stats() + rows;
    }
    forward->run(rig.library(), pick(t, {kQ, kK, kV, kO, kStats}), space);
    if (b > 0) merge(base.at(kO), rig.stats(), t[kO], rig.stats() + rows, rows, rig.stream());
  }
  for (int64_t b = 0; b < kBlocks; ++b) {
    backward->run(rig.library(), pick(part(b), {kQ, kK, kV, kO, kDO, kStats, kDQ, kDK, kDV}), space);
  }
  cuda_check(cudaStreamSynchronize(rig.stream()), "blocks");
  auto view = [](void* data) { return View{data, kHeadDim, kHeadDim, false}; };
  Attention a;
  a.q = view(base.at(kQ));
  a.k = view(base.at(kK));
  a.v = view(base.at(kV));
  a.o = view(base.at(kO));
  a.d_o = view(base.at(kDO));
  a.stats = rig.stats();
  a.stats_head = rows;
  a.queries = rows;
  a.keys = kBlocks * s.keys;
  a.scale = p.scale;
  const auto at_rows = sample(rows, 64, kHeadDim);
  const auto at_keys = sample(a.keys, 64, kHeadDim);
  const RowReference want = reference_rows(a, at_rows, rig.scratch(), rig.stream());
  const KeyReference key_want = reference_keys(a, at_keys, rig.scratch(), rig.stream());
  std::vector<float> dq(want.dq.size(), 0.0F);
  for (int64_t b = 0; b < kBlocks; ++b) {
    const auto one = gather(view(part(b).at(kDQ)), 1, at_rows, rig.stream());
    for (size_t i = 0; i < dq.size(); ++i) dq[i] += one[i];
  }
  rig.say("blocks",
          fmt::format("{} key blocks of {}, {} rows: o {:.1e} dq {:.1e} dk {:.1e} dv {:.1e}", kBlocks, s.keys, rows,
                      compare(gather(a.o, 1, at_rows, rig.stream()), want.o).norm, compare(dq, want.dq).norm,
                      compare(gather(view(base.at(kDK)), 1, at_keys, rig.stream()), key_want.dk).norm,
                      compare(gather(view(base.at(kDV)), 1, at_keys, rig.stream()), key_want.dv).norm));
}

void run_builds(Rig& rig) {
  if (rig.collecting()) return;
  const std::pair<int64_t, int64_t> sizes[] = {{64 * K, 64 * K}, {64 * K, 64 * K}, {50000, 50000}};
  for (Mask mask : {Mask::full, Mask::causal_top_left}) {
    for (bool dynamic : {false, true}) {
      for (const auto& [q, k] : sizes) {
        for (Pass pass : {Pass::forward, Pass::backward}) {
          Problem p = Rig::problem({.group = 8, .queries = q, .keys = k, .mask = mask});
          p.dynamic_shape = dynamic;
          const AttentionGraph g(rig.library(), pass, p);
          const BuildSeconds& t = g.seconds();
          rig.say("builds",
                  fmt::format(
                      "{} {} {}x{} {}: {:.3f} s (validate {:.3f} lower {:.3f} heuristics {:.3f} support {:.3f} plans "
                      "{:.3f}) ws {} {} {}",
                      dynamic ? "dynamic" : "fixed", pass == Pass::forward ? "forward" : "backward", q, k,
                      mask == Mask::full ? "full" : "causal", t.total(), t.validate, t.lower, t.heuristics, t.support,
                      t.plans, g.workspace_bytes(), g.plan(), g.error().substr(0, 300)));
        }
      }
    }
  }
}

void run_ragged(Rig& rig) {
  if (rig.collecting()) return;
  const std::vector<int64_t> lengths = {30000, 1000, 17000};
  const int64_t documents = static_cast<int64_t>(lengths.size());
  const int64_t heads = 8;
  const int64_t query_row = heads * kHeadDim;
  Problem p;
  p.batch = documents;
  p.query_heads = heads;
  p.queries = p.keys = *std::max_element(lengths.begin(), lengths.end());
  p.mask = Mask::causal_top_left;
  p.ragged = true;
  p.q = p.o = p.d_o = p.dq = {p.queries * query_row, kHeadDim, query_row};
  p.k = p.v = p.dk = p.dv = {p.keys * kHeadDim, kHeadDim, kHeadDim};
  std::vector<int32_t> true_lengths;
  std::vector<int64_t> q_at = {0};
  std::vector<int64_t> k_at = {0};
  std::vector<int64_t> stats_at = {0};
  double work = 0;
  for (int64_t n : lengths) {
    true_lengths.push_back(static_cast<int32_t>(n));
    q_at.push_back(q_at.back() + n * query_row);
    k_at.push_back(k_at.back() + n * kHeadDim);
    stats_at.push_back(stats_at.back() + n * heads);
    p.total_queries += n;
    work += flops({.group = heads, .queries = n, .keys = n, .mask = Mask::causal_top_left}, false);
  }
  p.total_keys = p.total_queries;
  const AttentionGraph forward(rig.library(), Pass::forward, p);
  const AttentionGraph backward(rig.library(), Pass::backward, p);
  if (!forward.built() || !backward.built()) {
    rig.say("ragged", "refused: " + forward.error() + " | " + backward.error());
    return;
  }
  rig.set_lengths(true_lengths, true_lengths);
  void* space = rig.workspace(std::max(forward.workspace_bytes(), backward.workspace_bytes()));
  rig.poison();
  Shape place{.group = heads, .queries = p.total_queries, .keys = p.total_keys};
  auto t = rig.tensors(place, p, false);
  t[kOffsetQ] = rig.offsets(0, q_at);
  t[kOffsetK] = rig.offsets(1, k_at);
  t[kOffsetStats] = rig.offsets(2, stats_at);
  const auto forward_tensors = pick(t, {kQ, kK, kV, kO, kStats, kLengthQ, kLengthK, kOffsetQ, kOffsetK, kOffsetStats});
  const auto backward_tensors =
      pick(t, {kQ, kK, kV, kO, kDO, kStats, kDQ, kDK, kDV, kLengthQ, kLengthK, kOffsetQ, kOffsetK, kOffsetStats});
  forward.run(rig.library(), forward_tensors, space);
  backward.run(rig.library(), backward_tensors, space);
  const double ms_f = median(rig.time([&] { forward.run(rig.library(), forward_tensors, space); }, 3));
  const double ms_b = median(rig.time([&] { backward.run(rig.library(), backward_tensors, space); }, 3));
  rig.say("ragged",
          fmt::format(
              "forward {:.3f} ms {:.1f} TF, backward {:.3f} ms {:.1f} TF, workspace {} / {}, build {:.2f} / {:.2f} s",
              ms_f, work / ms_f / 1e9, ms_b, 2.5 * work / ms_b / 1e9, forward.workspace_bytes(),
              backward.workspace_bytes(), forward.seconds().total(), backward.seconds().total()));
  for (int64_t d = 0; d < documents; ++d) {
    auto from = [](void* base, int64_t elements) {
      return static_cast<void*>(static_cast<char*>(base) + 2 * elements);
    };
    Attention a;
    a.q = {from(t[kQ], q_at[d]), query_row, kHeadDim, false};
    a.o = {from(t[kO], q_at[d]), query_row, kHeadDim, false};
    a.d_o = {from(t[kDO], q_at[d]), query_row, kHeadDim, false};
    a.k = {from(t[kK], k_at[d]), kHeadDim, kHeadDim, false};
    a.v = {from(t[kV], k_at[d]), kHeadDim, kHeadDim, false};
    a.stats = rig.stats() + stats_at[d];
    a.stats_head = 1;
    a.stats_row = heads;
    a.heads = a.group = heads;
    a.queries = a.keys = lengths[d];
    a.causal = true;  // top left: diagonal 0
    a.scale = p.scale;
    const auto rows = sample(lengths[d], 32, query_row);
    const RowReference want = reference_rows(a, rows, rig.scratch(), rig.stream());
    const KeyReference keys = reference_keys(a, rows, rig.scratch(), rig.stream());
    const View dq{from(t[kDQ], q_at[d]), query_row, kHeadDim, false};
    const View dk{from(t[kDK], k_at[d]), kHeadDim, kHeadDim, false};
    const View dv{from(t[kDV], k_at[d]), kHeadDim, kHeadDim, false};
    const Errors o = compare(gather(a.o, heads, rows, rig.stream()), want.o);
    const Errors eq = compare(gather(dq, heads, rows, rig.stream()), want.dq);
    const Errors ek = compare(gather(dk, 1, rows, rig.stream()), keys.dk);
    const Errors ev = compare(gather(dv, 1, rows, rig.stream()), keys.dv);
    rig.say("ragged", fmt::format("document of {}: o {:.1e} dq {:.1e} dk {:.1e} dv {:.1e}", lengths[d], o.norm, eq.norm,
                                  ek.norm, ev.norm));
  }
}

}  // namespace megatoken::probe
