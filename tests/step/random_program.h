// Random steps for property tests: nested loops both ways, scopes, buffers written whole or by tiles, per-iteration
// arrays, rings with prefetch, asynchronous ops on three streams, early ends. A seed is a program; every access waits
// for exactly what it must wait for. Elements are int64, mixed so that any wrong, stale or missing one changes the
// result.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <list>
#include <random>
#include <string>
#include <vector>

#include "step/step_context.h"

namespace megatoken::testing_step {

inline std::int64_t mix(std::int64_t value) {
  auto x = static_cast<std::uint64_t>(value) + 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return static_cast<std::int64_t>(x ^ (x >> 31));
}

inline std::int64_t wrapping_sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

// out = f(ins), or f(ins, out) when it is read as well.
inline Kernel mixing_kernel(std::vector<View> ins, View out, bool reads_out, std::int64_t salt) {
  return [ins = std::move(ins), out, reads_out, salt](Stream&) {
    std::int64_t h = salt;
    for (const View& v : ins)
      for (int64 r = 0; r < v.rows; ++r)
        for (int64 c = 0; c < v.cols; ++c) h = mix(h ^ v.row<const std::int64_t>(r)[c]);
    for (int64 r = 0; r < out.rows; ++r)
      for (int64 c = 0; c < out.cols; ++c) {
        std::int64_t& x = out.row<std::int64_t>(r)[c];
        x = mix(wrapping_sum(wrapping_sum(h, r * 1000 + c), reads_out ? x : 0));
      }
  };
}

class RandomProgram {
 public:
  static constexpr int64 kInputRows = 16;
  static constexpr int64 kCols = 8;
  static constexpr int64 kResultCols = 16;

  explicit RandomProgram(unsigned seed) : random_(seed) { root_ = make_block(0, {}); }

  // scale in (0, 1]: a smaller shape of the same program (fewer rows, fewer iterations).
  // drop_wait: leaves out that wait or dependency (counted from 0), a planted fault; -1: none.
  void run(StepContext& ctx, std::int64_t* input, std::int64_t* result, double scale = 1, int64 drop_wait = -1) {
    scale_ = scale;
    drop_wait_ = drop_wait;
    waits_ = 0;
    vars_.clear();
    vars_.resize(static_cast<std::size_t>(num_vars_));
    input_ = ctx.external("input", kInputRows, kCols, DType::i64, input, Place::host);
    result_ = ctx.external("result", 1, kResultCols, DType::i64, result);
    struct Clear {
      std::vector<Var>& vars;
      ~Clear() { vars.clear(); }
    } const clear{vars_};
    run_block(ctx, root_);
  }
  int64 waits() const { return waits_; }

 private:
  enum class Kind { make, make_tiled, update, async_make, async_update, block, loop, array_pair, reset, fold };
  struct Node {
    Kind kind = Kind::make;
    int var = -1;
    std::string name;
    std::vector<int> inputs;
    StreamId stream = StreamId::h2d;
    Place place = Place::device;
    int64 rows = 1;
    int64 first = 0, count = 0;  // part of an update, in eighths
    bool by_columns = false;
    int64 n = 0, depth = 0;
    LoopOptions loop;
    std::int64_t salt = 0;
    std::list<Node> body, body2;
    int ring_var = -1;
    std::vector<int> dying;  // vars of the block, joined at its end
  };
  struct Var {
    Buffer buffer;
    Array array;
    View view;
    Ticket written;                          // the last asynchronous write
    std::array<Ticket, kNumStreams> last{};  // the last asynchronous access
  };

  int pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  std::string next_name(std::vector<std::string>& used) {
    for (int i = 0;; ++i) {
      std::string name = fmt::format("b{}", i);
      if (std::find(used.begin(), used.end(), name) != used.end()) continue;
      used.push_back(name);
      return name;
    }
  }
  std::vector<int> some(const std::vector<int>& visible, int most) {
    std::vector<int> chosen;
    for (int i = pick(most + 1); i > 0 && !visible.empty(); --i)
      chosen.push_back(visible[static_cast<std::size_t>(pick(static_cast<int>(visible.size())))]);
    return chosen;
  }

  // names_: in use at the loop level at hand.
  Node make_block(int depth, std::vector<int> visible) {
    Node block;
    block.kind = Kind::block;
    const std::size_t names_before = names_.size();
    std::vector<int> own;
    const int statements = 2 + pick(5);
    for (int s = 0; s < statements; ++s) {
      Node node;
      node.salt = static_cast<std::int64_t>(random_());
      node.inputs = some(visible, 2);
      node.rows = 1 + pick(6);
      node.stream = kStreams[static_cast<std::size_t>(pick(3))];
      node.place = pick(4) == 0 ? Place::host : Place::device;
      node.by_columns = pick(2) == 0;
      node.first = pick(8);
      node.count = 1 + pick(8 - static_cast<int>(node.first));
      node.loop.reverse = pick(3) == 0;
      node.loop.period = 1 + pick(3);
      node.n = pick(6) == 0 ? 12 + pick(8) : pick(6);
      switch (pick(12)) {
        case 0:
        case 1:
          node.kind = Kind::make;
          break;
        case 2:
          node.kind = Kind::make_tiled;
          break;
        case 3:
        case 4:
          node.kind = Kind::async_make;
          break;
        case 5:
          node.kind = Kind::update;
          break;
        case 6:
          node.kind = Kind::async_update;
          break;
        case 7:
          node.kind = Kind::fold;
          break;
        case 8:
          node.kind = Kind::reset;
          break;
        case 9:
          node.kind = Kind::block;
          break;
        case 10:
          node.kind = Kind::loop;
          break;
        default:
          node.kind = Kind::array_pair;
          break;
      }
      const bool nests = node.kind == Kind::block || node.kind == Kind::loop || node.kind == Kind::array_pair;
      if (nests && depth >= 3) node.kind = Kind::make;
      if (visible.empty() && (node.kind == Kind::update || node.kind == Kind::async_update || node.kind == Kind::fold))
        node.kind = Kind::make;
      if (own.empty() && node.kind == Kind::reset) node.kind = Kind::make;
      if (node.kind == Kind::make || node.kind == Kind::make_tiled || node.kind == Kind::async_make) {
        node.var = num_vars_++;
        node.name = next_name(names_);
        own.push_back(node.var);
        visible.push_back(node.var);
      } else if (node.kind == Kind::update || node.kind == Kind::async_update || node.kind == Kind::fold) {
        node.var = visible[static_cast<std::size_t>(pick(static_cast<int>(visible.size())))];
        std::erase(node.inputs, node.var);
      } else if (node.kind == Kind::reset) {
        node.var = own[static_cast<std::size_t>(pick(static_cast<int>(own.size())))];
        std::erase(own, node.var);
        std::erase(visible, node.var);
      } else if (node.kind == Kind::block) {
        block.body.push_back(make_block(depth + 1, visible));
        continue;
      } else {
        std::vector<std::string> outer;
        node.name = fmt::format("l{}", num_loops_++ % 3);
        if (node.kind == Kind::array_pair) {
          node.depth = 1 + pick(2);
          node.loop.period *= node.depth;
          node.var = num_vars_++;
          node.ring_var = num_vars_++;
          node.name = next_name(names_);
        }
        outer.swap(names_);
        std::vector<int> inner = visible;
        node.body.push_back(make_block(depth + 1, inner));
        if (node.kind == Kind::array_pair) {
          inner.push_back(node.ring_var);
          node.body2.push_back(make_block(depth + 1, inner));
        }
        names_.swap(outer);
      }
      block.body.push_back(std::move(node));
    }
    block.dying = own;
    names_.resize(names_before);
    return block;
  }

  Var& var(int i) { return vars_[static_cast<std::size_t>(i)]; }
  bool dropped() { return waits_++ == drop_wait_; }
  void wait(StepContext& ctx, const Ticket& ticket) {
    if (ticket.seq > 0 && !dropped()) ctx.wait(ticket, "random");
  }
  void wait_all(StepContext& ctx, Var& v) {
    for (const Ticket& t : v.last) wait(ctx, t);
  }
  Ticket need(const Ticket& ticket) { return ticket.seq > 0 && dropped() ? Ticket{} : ticket; }
  Cost cost(const View& v) {
    return {CostKind::memory, static_cast<double>(v.elements()), static_cast<double>(v.bytes())};
  }
  int64 scaled(int64 n) const {
    return n == 0 ? 0 : std::max<int64>(1, static_cast<int64>(static_cast<double>(n) * scale_));
  }

  // f(list) with at most two inputs.
  template <typename F>
  void with_accesses(const std::vector<View>& ins, const Access& written, F&& f) {
    if (ins.empty()) f({written});
    if (ins.size() == 1) f({in(ins[0]), written});
    if (ins.size() >= 2) f({in(ins[0]), in(ins[1]), written});
  }
  void compute(StepContext& ctx, const Node& node, const View& target, bool reads) {
    std::vector<View> ins;
    for (const int i : node.inputs) {
      wait(ctx, var(i).written);
      ins.push_back(var(i).view);
    }
    with_accesses(ins, reads ? inout(target) : out(target), [&](std::initializer_list<Access> list) {
      ctx.op("compute", cost(target), list, mixing_kernel(ins, target, reads, node.salt));
    });
  }
  void async(StepContext& ctx, const Node& node, Var& v, const View& target, bool reads) {
    std::vector<View> ins;
    std::array<Ticket, 5> after{};
    std::size_t used = 0;
    for (const int i : node.inputs) {
      after[used++] = need(var(i).written);
      ins.push_back(var(i).view);
    }
    for (std::size_t s = 1; s < v.last.size(); ++s) after[used++] = need(v.last[s]);
    with_accesses(ins, reads ? inout(target) : out(target), [&](std::initializer_list<Access> list) {
      v.written =
          ctx.async(node.stream, "async", cost(target), list, {after[0], after[1], after[2], after[3], after[4]},
                    mixing_kernel(ins, target, reads, node.salt));
    });
    const auto s = static_cast<std::size_t>(node.stream);
    v.last[s] = v.written;
    for (const int i : node.inputs) var(i).last[s] = v.written;
  }
  View part(const Node& node, const View& view) const {
    const int64 all = node.by_columns ? view.cols : view.rows;
    const int64 first = std::min(all - 1, node.first * all / 8);
    const int64 count = std::max<int64>(1, std::min(all - first, node.count * all / 8));
    return node.by_columns ? view.col_range(first, count) : view.row_range(first, count);
  }

  void run_block(StepContext& ctx, const Node& block) {
    for (const Node& node : block.body) run_node(ctx, node);
    for (const int d : block.dying) {
      wait_all(ctx, var(d));
      var(d) = Var();
    }
  }

  void run_node(StepContext& ctx, const Node& node) {
    switch (node.kind) {
      case Kind::make:
      case Kind::async_make:
      case Kind::make_tiled: {
        Var& v = var(node.var);
        v.buffer = ctx.buffer(node.name, scaled(node.rows), kCols, DType::i64, node.place);
        v.view = v.buffer;
        if (node.kind == Kind::make) compute(ctx, node, v.view, false);
        if (node.kind == Kind::async_make) async(ctx, node, v, v.view, false);
        if (node.kind == Kind::make_tiled) {
          const int64 all = node.by_columns ? v.view.cols : v.view.rows;
          for (const int64 t : ctx.loop("tile " + node.name, all, node.loop))
            compute(ctx, node, node.by_columns ? v.view.col_range(t, 1) : v.view.row_range(t, 1), false);
        }
        return;
      }
      case Kind::update:
        wait_all(ctx, var(node.var));
        return compute(ctx, node, part(node, var(node.var).view), true);
      case Kind::async_update:
        return async(ctx, node, var(node.var), part(node, var(node.var).view), true);
      case Kind::fold: {
        wait(ctx, var(node.var).written);
        const View& v = var(node.var).view;
        ctx.op("fold", cost(v), {in(v), inout(result_)}, mixing_kernel({v}, result_, true, node.salt));
        return;
      }
      case Kind::reset:
        wait_all(ctx, var(node.var));
        var(node.var) = Var();
        return;
      case Kind::block:
        return run_block(ctx, node);
      case Kind::loop:
        for ([[maybe_unused]] const int64 i : ctx.loop(node.name, scaled(node.n), node.loop))
          run_block(ctx, node.body.front());
        return;
      case Kind::array_pair:
        return run_array(ctx, node);
    }
  }

  // A forward loop leaves a piece an iteration, saved asynchronously; a second one fetches them through a ring.
  void run_array(StepContext& ctx, const Node& node) {
    const int64 n = scaled(node.n);
    Var& kept = var(node.var);
    kept.array = ctx.array(node.name, n, scaled(node.rows), kCols, DType::i64, node.place);
    for (const int64 i : ctx.loop("save " + node.name, n, {.period = node.loop.period})) {
      run_block(ctx, node.body.front());
      Buffer x = ctx.buffer("x", scaled(node.rows), kCols, DType::i64);
      const View row = input_.row_range(i % kInputRows, 1);
      ctx.op("produce", cost(x), {in(row), out(x)}, mixing_kernel({row}, x, false, node.salt));
      kept.last[2] = ctx.async(StreamId::d2h, "save", cost(x), {in(x), out(kept.array.at(i))}, {},
                               mixing_kernel({x}, kept.array.at(i), false, 1));
      wait(ctx, kept.last[2]);
    }
    Ring ring = ctx.ring("r" + node.name, node.depth, scaled(node.rows), kCols, DType::i64);
    Buffer next;
    Ticket ready;
    const auto fetch = [&](int64 i) {
      next = ring.acquire();
      ready = ctx.async(StreamId::h2d, "fetch", cost(next), {in(kept.array.at(i)), out(next)}, {need(kept.last[2])},
                        mixing_kernel({kept.array.at(i)}, next, false, 2));
      kept.last[1] = ready;
    };
    const int64 step = node.loop.reverse ? -1 : 1;
    const int64 start = node.loop.reverse ? n - 1 : 0;
    if (node.depth > 1 && n > 0) fetch(start);
    for (const int64 i : ctx.loop("load " + node.name, n, node.loop)) {
      if (node.depth == 1) fetch(i);
      Var& x = var(node.ring_var);
      x = Var();
      x.buffer = std::move(next);
      x.view = x.buffer;
      x.written = ready;
      x.last[1] = ready;
      if (node.depth > 1 && i + step >= 0 && i + step < n) fetch(i + step);
      run_block(ctx, node.body2.front());
      wait(ctx, x.written);
      ctx.op("fold", cost(x.view), {in(x.view), inout(result_)}, mixing_kernel({x.view}, result_, true, node.salt));
      if (node.salt % 2 == 0) wait_all(ctx, x);
      x = Var();
    }
    wait_all(ctx, kept);
    kept = Var();
  }

  static constexpr std::array<StreamId, 3> kStreams = {StreamId::h2d, StreamId::d2h, StreamId::exchange};
  std::mt19937 random_;
  std::vector<std::string> names_;
  int num_vars_ = 0;
  int num_loops_ = 0;
  Node root_;
  std::vector<Var> vars_;
  View input_, result_;
  double scale_ = 1;
  int64 drop_wait_ = -1;
  int64 waits_ = 0;
};

}  // namespace megatoken::testing_step
