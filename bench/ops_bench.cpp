// The CPU ops at the shapes of a training step: GFLOP/s where arithmetic bounds them, GB/s where memory does.
//
//   ops_bench [--threads N] [Google Benchmark's own flags, such as --benchmark_filter=attention]
//
// tools/bench_torch_ops.py times PyTorch at the same shapes.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <deque>
#include <string>
#include <string_view>

#include "base/random.h"
#include "ops/op_table.h"

namespace megatoken {
namespace {

int threads = 2;

// Standard normal matrices on the CPU device, and one op repeated on them.
class Bench {
 public:
  View random(int64 rows, int64 cols, DType dtype) {
    View view = zero(rows, cols, dtype);
    std::vector<float> values(static_cast<std::size_t>(view.elements()));
    Random(1, stream_number_++).fill_normal(values, 0, 0.0f, 1.0f);
    const View source(values.data(), DType::f32, rows, cols);
    run([&](Stream& s) { cpu_op_table().convert(s, {source, view}); });
    return view;
  }
  View zero(int64 rows, int64 cols, DType dtype) {
    memory_.push_back(device_->allocate(rows * cols * size_of(dtype), "benchmark"));
    const View view(memory_.back().data(), dtype, rows, cols);
    run([&](Stream& s) { cpu_op_table().fill_zero(s, {view}); });
    return view;
  }
  View indices(int64 n, int64 bound) {
    View view = zero(n, 1, DType::i32);
    const Random random(2, 0);
    for (int64 i = 0; i < n; ++i)
      *view.row<std::int32_t>(i) =
          static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(bound)));
    return view;
  }
  void measure(benchmark::State& state, const Cost& cost, const std::function<void(Stream&)>& op) {
    for ([[maybe_unused]] const auto _ : state) run(op);
    const auto rate = [&](double amount) {
      return benchmark::Counter(amount * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
    };
    if (cost.kind != CostKind::memory) state.counters["GFLOP/s"] = rate(cost.flops);
    state.counters["GB/s"] = rate(cost.bytes);
  }
  void run(const std::function<void(Stream&)>& op) {
    stream_->submit(op);
    stream_->synchronize();
  }

 private:
  std::unique_ptr<Device> device_ = create_cpu_device(threads);
  std::unique_ptr<Stream> stream_ = device_->create_stream(StreamMode::in_order_inline);
  std::deque<Memory> memory_;
  std::uint64_t stream_number_ = 0;
};

const OpTable& ops() { return cpu_op_table(); }

void gemm(benchmark::State& state, DType dtype, bool transpose_a, bool transpose_b) {
  Bench bench;
  const int64 m = state.range(0), n = state.range(1), k = state.range(2);
  const View a = transpose_a ? bench.random(k, m, dtype) : bench.random(m, k, dtype);
  const View b = transpose_b ? bench.random(n, k, dtype) : bench.random(k, n, dtype);
  const Gemm op{a, b, bench.zero(m, n, dtype), {}, transpose_a, transpose_b};
  bench.measure(state, cost_of(op), [&](Stream& s) { ops().gemm(s, op); });
}

// Arguments: tokens, heads, KV heads, head dimension; causal.
struct AttentionBench {
  AttentionBench(const benchmark::State& state, DType dtype) {
    const int64 tokens = state.range(0);
    op.heads = state.range(1);
    op.kv_heads = state.range(2);
    op.head_dim = state.range(3);
    op.scale = 0.125f;
    op.mask = AttentionMask::causal;
    op.q = bench.random(tokens, op.heads * op.head_dim, dtype);
    op.k = bench.random(tokens, op.kv_heads * op.head_dim, dtype);
    op.v = bench.random(tokens, op.kv_heads * op.head_dim, dtype);
    op.o = bench.zero(tokens, op.heads * op.head_dim, dtype);
    op.lse = bench.zero(op.heads, tokens, DType::f32);
  }
  Bench bench;
  AttentionForward op;
};

void attention_forward(benchmark::State& state, DType dtype) {
  AttentionBench a(state, dtype);
  a.bench.measure(state, cost_of(a.op), [&](Stream& s) { ops().attention_forward(s, a.op); });
}

void attention_backward(benchmark::State& state, DType dtype) {
  AttentionBench a(state, dtype);
  AttentionBackward op;
  op.q = a.op.q;
  op.k = a.op.k;
  op.v = a.op.v;
  op.o = a.op.o;
  op.lse = a.op.lse;
  op.dout = a.bench.random(op.q.rows, op.q.cols, dtype);
  op.dq = a.bench.zero(op.q.rows, op.q.cols, DType::f32);
  op.dk = a.bench.zero(op.k.rows, op.k.cols, DType::f32);
  op.dv = a.bench.zero(op.v.rows, op.v.cols, DType::f32);
  op.heads = a.op.heads;
  op.kv_heads = a.op.kv_heads;
  op.head_dim = a.op.head_dim;
  op.scale = a.op.scale;
  op.mask = a.op.mask;
  op.workspace = a.bench.zero(1, ops().attention_backward_workspace(op), DType::u8);
  a.bench.run([&](Stream& s) { ops().attention_forward(s, a.op); });  // o and lse
  a.bench.measure(state, cost_of(op), [&](Stream& s) { ops().attention_backward(s, op); });
}

// Arguments of the ones below: rows, columns.
void rms_norm(benchmark::State& state, DType dtype) {
  Bench bench;
  const RmsNorm op{bench.random(state.range(0), state.range(1), dtype), bench.random(1, state.range(1), dtype),
                   bench.zero(state.range(0), state.range(1), dtype)};
  bench.measure(state, cost_of(op), [&](Stream& s) { ops().rms_norm(s, op); });
}

void rms_norm_backward(benchmark::State& state, DType dtype) {
  Bench bench;
  const int64 rows = state.range(0), cols = state.range(1);
  const View dx = bench.zero(rows, cols, DType::f32);
  const RmsNormBackward op{
      bench.random(rows, cols, dtype), bench.random(1, cols, dtype), bench.random(rows, cols, dtype), dx, dx,
      bench.zero(1, cols, DType::f32)};
  bench.measure(state, cost_of(op), [&](Stream& s) { ops().rms_norm_backward(s, op); });
}

NormRope norm_rope_op(Bench& bench, int64 rows, int64 cols, DType dtype) {
  NormRope op;
  op.head_dim = 64;
  op.x = bench.random(rows, cols, dtype);
  op.weight = bench.random(1, op.head_dim, dtype);
  op.y = bench.zero(rows, cols, dtype);
  op.positions = bench.indices(rows, rows);
  op.inverse_frequency = bench.random(1, op.head_dim / 2, DType::f32);
  return op;
}

void norm_rope(benchmark::State& state, DType dtype) {
  Bench bench;
  const NormRope op = norm_rope_op(bench, state.range(0), state.range(1), dtype);
  bench.measure(state, cost_of(op), [&](Stream& s) { ops().norm_rope(s, op); });
}

void norm_rope_backward(benchmark::State& state, DType dtype) {
  Bench bench;
  const int64 rows = state.range(0), cols = state.range(1);
  const NormRopeBackward op{norm_rope_op(bench, rows, cols, dtype), bench.random(rows, cols, DType::f32),
                            bench.zero(rows, cols, dtype), bench.zero(1, 64, DType::f32)};
  bench.measure(state, cost_of(op), [&](Stream& s) { ops().norm_rope_backward(s, op); });
}

void swiglu(benchmark::State& state, DType dtype) {
  Bench bench;
  const Swiglu op{bench.random(state.range(0), 2 * state.range(1), dtype),
                  bench.zero(state.range(0), state.range(1), dtype)};
  bench.measure(state, cost_of(op), [&](Stream& s) { ops().swiglu(s, op); });
}

void swiglu_backward(benchmark::State& state, DType dtype) {
  Bench bench;
  const int64 rows = state.range(0), cols = state.range(1);
  const SwigluBackward op{bench.random(rows, 2 * cols, dtype), bench.random(rows, cols, dtype),
                          bench.zero(rows, 2 * cols, dtype)};
  bench.measure(state, cost_of(op), [&](Stream& s) { ops().swiglu_backward(s, op); });
}

void cross_entropy(benchmark::State& state, DType dtype) {
  Bench bench;
  const int64 rows = state.range(0), cols = state.range(1);
  const CrossEntropy op{bench.random(rows, cols, DType::f32), bench.indices(rows, cols),
                        bench.zero(rows, 1, DType::f32),      bench.zero(rows, 1, DType::f32),
                        bench.zero(rows, 1, DType::f32),      bench.zero(rows, cols, dtype)};
  bench.measure(state, cost_of(op), [&](Stream& s) { ops().cross_entropy(s, op); });
}

void adamw(benchmark::State& state, DType dtype) {
  Bench bench;
  const int64 n = state.range(0);
  Adamw op;
  op.weight = bench.random(1, n, dtype);
  if (dtype == DType::bf16) op.remainder = bench.zero(1, n, DType::u16);
  op.grad = bench.random(1, n, DType::f32);
  op.exp_avg = bench.zero(1, n, DType::f32);
  op.exp_avg_sq = bench.zero(1, n, DType::f32);
  op.lr = 1e-5;
  bench.measure(state, cost_of(op), [&](Stream& s) { ops().adamw(s, op); });
}

void sum_squares(benchmark::State& state) {
  Bench bench;
  const SumSquares op{bench.random(1, state.range(0), DType::f32), bench.zero(1, 1, DType::f64)};
  bench.measure(state, cost_of(op), [&](Stream& s) { ops().sum_squares(s, op); });
}

void accumulate(benchmark::State& state, DType from, DType to) {
  Bench bench;
  const int64 rows = state.range(0), cols = state.range(1);
  const Accumulate op{bench.random(rows, cols, from), bench.zero(rows, cols, to)};
  bench.measure(state, cost_of(op), [&](Stream& s) { ops().accumulate(s, op); });
}

void embedding_backward(benchmark::State& state) {
  Bench bench;
  const int64 rows = state.range(0), cols = state.range(1);
  const EmbeddingBackward op{bench.indices(rows, 8192), bench.random(rows, cols, DType::f32),
                             bench.zero(8192, cols, DType::f32)};
  bench.measure(state, cost_of(op), [&](Stream& s) { ops().embedding_backward(s, op); });
}

template <typename... Args>
benchmark::internal::Benchmark* add(const std::string& name, void (*function)(benchmark::State&, Args...),
                                    std::type_identity_t<Args>... args) {
  return benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { function(state, args...); })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

void register_all() {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const std::string type = dtype == DType::f32 ? "/f32" : "/bf16";
    add("gemm" + type + "/nt", gemm, dtype, false, true)
        ->Args({2048, 1024, 256})
        ->Args({2048, 1536, 256})
        ->Args({2048, 256, 768})
        ->Args({1024, 8192, 256})
        ->Args({1024, 1024, 1024});
    add("gemm" + type + "/nn", gemm, dtype, false, false)->Args({2048, 256, 1024})->Args({1024, 256, 8192});
    add("gemm" + type + "/tn", gemm, dtype, true, false)
        ->Args({1536, 256, 2048})
        ->Args({256, 256, 8192})
        ->Args({8192, 256, 1024});
    for (const int64 tokens : {2048, 8192}) {
      add("attention_forward" + type, attention_forward, dtype)->Args({tokens, 8, 4, 64});
      add("attention_backward" + type, attention_backward, dtype)->Args({tokens, 8, 4, 64});
    }
    add("attention_forward" + type, attention_forward, dtype)->Args({4096, 2, 1, 128});
    add("attention_backward" + type, attention_backward, dtype)->Args({4096, 2, 1, 128});
    add("rms_norm" + type, rms_norm, dtype)->Args({8192, 256});
    add("rms_norm_backward" + type, rms_norm_backward, dtype)->Args({8192, 256});
    add("norm_rope" + type, norm_rope, dtype)->Args({8192, 512});
    add("norm_rope_backward" + type, norm_rope_backward, dtype)->Args({8192, 512});
    add("swiglu" + type, swiglu, dtype)->Args({2048, 768});
    add("swiglu_backward" + type, swiglu_backward, dtype)->Args({2048, 768});
    add("cross_entropy" + type, cross_entropy, dtype)->Args({1024, 8192})->Args({256, 151936});
    add("adamw" + type, adamw, dtype)->Args({8 << 20});
    add("accumulate" + type, accumulate, dtype, DType::f32)->Args({8192, 256});
  }
  add("sum_squares", sum_squares)->Args({8 << 20});
  add("embedding_backward", embedding_backward)->Args({8192, 256});
}

}  // namespace
}  // namespace megatoken

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (int i = 1; i + 1 < argc; ++i)
    if (std::string_view(argv[i]) == "--threads") megatoken::threads = std::atoi(argv[i + 1]);
  megatoken::register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
