// Times every CUDA op at the shapes of a training step and prints what it reaches: GB/s of the bytes it must move, or
// TFLOP/s, beside what a plain copy and a plain product reach on the same device in the same run.
//   cuda_ops_bench [tokens] [hidden] [intermediate] [vocabulary]
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_stream.h"
#include "ops/op_table.h"

namespace megatoken {
namespace {

class Bench {
 public:
  Bench() : device_(create_cuda_device(0)), stream_(device_->create_stream(StreamMode::in_order_inline)) {
    check_cuda(cudaEventCreate(&begin_), "an event");
    check_cuda(cudaEventCreate(&end_), "an event");
  }

  // Pseudo-random contents: numbers about 0.01 of both signs, ids below bound.
  View matrix(int64 rows, int64 cols, DType dtype, int64 bound = 0) {
    View v(nullptr, dtype, rows, cols);
    memory_.push_back(device_->allocate(v.bytes(), "bench matrix"));
    v.data = memory_.back().data();
    std::vector<std::byte> host(static_cast<std::size_t>(std::min<int64>(v.bytes(), 64 << 20)));
    for (std::size_t i = 0; i + 4 <= host.size(); i += 4) {
      const std::uint32_t random = state_ = state_ * 1664525u + 1013904223u;
      std::uint32_t word = 0;
      if (dtype == DType::i32) word = random % static_cast<std::uint32_t>(bound);
      if (dtype == DType::f32) word = 0x3C000000u | (random & 0x807FFFFFu);
      if (dtype == DType::bf16) word = 0x3C003C00u | (random & 0x807F807Fu);
      std::memcpy(host.data() + i, &word, 4);
    }
    stream_->submit([&](Stream& s) {
      for (int64 at = 0; at < v.bytes(); at += static_cast<int64>(host.size()))
        s.copy(v.data + at, host.data(), std::min<int64>(static_cast<int64>(host.size()), v.bytes() - at));
    });
    stream_->synchronize();
    return v;
  }

  // Median milliseconds of one call.
  double time(const std::function<void(Stream&)>& op) {
    auto& stream = cuda_stream(*stream_);
    stream_->submit(op);
    stream_->synchronize();
    std::vector<double> ms;
    for (int i = 0; i < 7; ++i) {
      check_cuda(cudaEventRecord(begin_, stream.native()), "timing");
      stream_->submit(op);
      check_cuda(cudaEventRecord(end_, stream.native()), "timing");
      stream_->synchronize();
      float elapsed = 0;
      check_cuda(cudaEventElapsedTime(&elapsed, begin_, end_), "timing");
      ms.push_back(static_cast<double>(elapsed));
    }
    std::sort(ms.begin(), ms.end());
    return ms[3];
  }
  void report(const std::string& name, const Cost& cost, const std::function<void(Stream&)>& op) {
    const double ms = time(op);
    if (cost.kind == CostKind::memory || cost.kind == CostKind::transfer)
      fmt::print("{:34} {:9.3f} ms {:8.0f} GB/s\n", name, ms, cost.bytes / ms / 1e6);
    else
      fmt::print("{:34} {:9.3f} ms {:8.0f} TFLOP/s\n", name, ms, cost.flops / ms / 1e9);
  }
  template <typename Op>
  void report(const std::string& name, const Op& op, void (*run)(Stream&, const Op&)) {
    report(name, cost_of(op), [&](Stream& s) { run(s, op); });
  }
  void release() { memory_.clear(); }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::uint32_t state_ = 1;
  std::deque<Memory> memory_;
};

void elementwise(Bench& bench, const OpTable& ops, int64 tokens, int64 hidden, int64 intermediate) {
  constexpr float kEps = 1e-6f;
  const View x = bench.matrix(tokens, hidden, DType::bf16), y = bench.matrix(tokens, hidden, DType::bf16);
  const View wide = bench.matrix(tokens, hidden, DType::f32), weight = bench.matrix(1, hidden, DType::bf16);
  const View dweight = bench.matrix(1, hidden, DType::f32);
  bench.report("copy", {CostKind::transfer, 0, 2.0 * static_cast<double>(x.bytes())},
               [&](Stream& s) { s.copy(y.data, x.data, x.bytes()); });
  bench.report("rms_norm", RmsNorm{x, weight, y, kEps}, ops.rms_norm);
  bench.report("rms_norm_backward f32 dy", RmsNormBackward{x, weight, wide, y, y, dweight, kEps}, ops.rms_norm_backward);
  bench.report("convert f32 to bf16", Convert{wide, y}, ops.convert);
  bench.report("accumulate bf16 into f32", Accumulate{x, wide}, ops.accumulate);
  bench.report("add_bias", AddBias{y, weight}, ops.add_bias);
  bench.report("bias_gradient", BiasGradient{x, dweight}, ops.bias_gradient);
  const View positions = bench.matrix(tokens, 1, DType::i32, 1 << 20), frequency = bench.matrix(1, 64, DType::f32);
  const View norm = bench.matrix(1, 128, DType::bf16), dnorm = bench.matrix(1, 128, DType::f32);
  for (const int64 heads : {int64{1}, hidden / 128}) {
    const View q = x.col_range(0, heads * 128), to = y.col_range(0, heads * 128);
    const NormRope rope{q, norm, to, positions, {}, frequency, 1, kEps, 128};
    const std::string suffix = fmt::format(" {} heads", heads);
    bench.report("norm_rope" + suffix, rope, ops.norm_rope);
    bench.report("norm_rope_backward" + suffix, NormRopeBackward{rope, wide.col_range(0, heads * 128), to, dnorm},
                 ops.norm_rope_backward);
  }
  const View gate_up = bench.matrix(tokens, 2 * intermediate, DType::bf16), act = bench.matrix(tokens, intermediate, DType::bf16);
  bench.report("swiglu", Swiglu{gate_up, act}, ops.swiglu);
  bench.report("swiglu_backward", SwigluBackward{gate_up, act, gate_up}, ops.swiglu_backward);
  const int64 heads = hidden / 128;
  const View lse = bench.matrix(heads, tokens, DType::f32), lse_part = bench.matrix(heads, tokens, DType::f32);
  bench.report("attention_merge", AttentionMerge{x, lse_part, wide, lse, heads, 128, false}, ops.attention_merge);
  bench.release();
}

void vocabulary_ops(Bench& bench, const OpTable& ops, int64 tokens, int64 hidden, int64 vocabulary) {
  const View ids = bench.matrix(tokens, 1, DType::i32, vocabulary), table = bench.matrix(vocabulary, hidden, DType::bf16);
  const View dtable = bench.matrix(vocabulary, hidden, DType::f32), x = bench.matrix(tokens, hidden, DType::bf16);
  bench.report("embedding", Embedding{ids, table, x}, ops.embedding);
  bench.report("embedding_backward", EmbeddingBackward{ids, x, dtable}, ops.embedding_backward);
  const View few = bench.matrix(tokens, 1, DType::i32, 50);
  bench.report("embedding_backward, 50 ids", EmbeddingBackward{few, x, dtable}, ops.embedding_backward);
  const int64 rows = 2048;
  const View logits = bench.matrix(rows, vocabulary, DType::f32), dlogits = bench.matrix(rows, vocabulary, DType::bf16);
  const View labels = bench.matrix(rows, 1, DType::i32, vocabulary), out = bench.matrix(3, rows, DType::f32);
  const auto column = [&](int64 i) { return View(out.row<float>(i), DType::f32, rows, 1); };
  bench.report("cross_entropy", CrossEntropy{logits, labels, column(0), column(1), column(2), dlogits}, ops.cross_entropy);
  const View h = x.row_range(0, rows), dh = bench.matrix(rows, hidden, DType::f32);
  bench.report("gemm head", Gemm{h, table, logits, {}, false, true}, ops.gemm);
  bench.report("gemm head weight gradient", Gemm{dlogits, h, dtable, dtable, true, false}, ops.gemm);
  bench.report("gemm head input gradient", Gemm{dlogits, table, dh, {}, false, false}, ops.gemm);
  bench.release();
}

void state_ops(Bench& bench, const OpTable& ops, int64 elements) {
  Adamw op;
  op.weight = bench.matrix(1, elements, DType::bf16);
  op.remainder = View(bench.matrix(1, elements, DType::bf16).data, DType::u16, 1, elements);
  op.grad = bench.matrix(1, elements, DType::f32);
  op.exp_avg = bench.matrix(1, elements, DType::f32);
  op.exp_avg_sq = bench.matrix(1, elements, DType::f32);
  op.lr = 1e-9;
  bench.report("adamw, split masters", op, ops.adamw);
  const View sum(bench.matrix(1, 2, DType::f32).data, DType::f64, 1, 1);
  bench.report("sum_squares", SumSquares{op.grad, sum}, ops.sum_squares);
  bench.release();
}

void products(Bench& bench, const OpTable& ops, int64 tokens, int64 hidden, int64 intermediate) {
  const int64 q = 2 * hidden;
  const View x = bench.matrix(tokens, hidden, DType::bf16), y = bench.matrix(tokens, hidden, DType::bf16);
  const View o = bench.matrix(tokens, q, DType::bf16), wide = bench.matrix(tokens, hidden, DType::f32);
  const View gate_up = bench.matrix(tokens, 2 * intermediate, DType::bf16), act = bench.matrix(tokens, intermediate, DType::bf16);
  const View w = bench.matrix(2 * intermediate, hidden, DType::bf16), down = bench.matrix(hidden, intermediate, DType::bf16);
  const View dw = bench.matrix(2 * intermediate, hidden, DType::f32), wo = bench.matrix(hidden, q, DType::bf16);
  bench.report("gemm output projection + x", Gemm{o, wo, y, x, false, true}, ops.gemm);
  bench.report("gemm gate and up", Gemm{x, w, gate_up, {}, false, true}, ops.gemm);
  bench.report("gemm down, added in place", Gemm{act, down, y, y, false, true}, ops.gemm);
  bench.report("gemm gate and up weight gradient", Gemm{gate_up, x, dw, dw, true, false}, ops.gemm);
  bench.report("gemm gate and up input gradient", Gemm{gate_up, w, wide, {}, false, false}, ops.gemm);
  bench.report("gemm one KV head's keys", Gemm{x, w.row_range(0, 128), o.col_range(0, 128), {}, false, true}, ops.gemm);
  bench.release();
}

void attention(Bench& bench, const OpTable& ops, int64 queries, int64 keys, int64 heads, bool causal) {
  AttentionForward f;
  f.q = bench.matrix(queries, heads * 128, DType::bf16);
  f.k = bench.matrix(keys, 128, DType::bf16);
  f.v = bench.matrix(keys, 128, DType::bf16);
  f.o = bench.matrix(queries, heads * 128, DType::bf16);
  f.lse = bench.matrix(heads, queries, DType::f32);
  f.heads = heads;
  f.kv_heads = 1;
  f.head_dim = 128;
  f.scale = 0.0883883476f;
  f.mask = causal ? AttentionMask::causal : AttentionMask::full;
  f.workspace = bench.matrix(1, ops.attention_forward_workspace(f), DType::u8);
  AttentionBackward b;
  b.q = f.q;
  b.k = f.k;
  b.v = f.v;
  b.o = f.o;
  b.lse = f.lse;
  b.dout = bench.matrix(queries, heads * 128, DType::bf16);
  b.dq = bench.matrix(queries, heads * 128, DType::f32);
  b.dk = bench.matrix(keys, 128, DType::f32);
  b.dv = bench.matrix(keys, 128, DType::f32);
  b.heads = heads;
  b.kv_heads = 1;
  b.head_dim = 128;
  b.scale = f.scale;
  b.mask = f.mask;
  b.workspace = bench.matrix(1, ops.attention_backward_workspace(b), DType::u8);
  const std::string name = fmt::format(" {}Kx{}K g{}{}", queries / 1024, keys / 1024, heads, causal ? " causal" : "");
  bench.report("attention" + name, f, ops.attention_forward);
  bench.report("attention_backward" + name, b, ops.attention_backward);
  fmt::print("{:34} {:9.1f} MiB\n", "  its workspace", static_cast<double>(b.workspace.bytes()) / (1 << 20));
  bench.release();
}

// Device memory in use by this process, as far as the driver tells: what the whole device has lost since `before`.
double used_mib(std::size_t before) {
  std::size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "memory in use");
  return (static_cast<double>(before) - static_cast<double>(free)) / (1 << 20);
}

int run(int argc, char** argv) {
  const auto argument = [&](int i, int64 fallback) { return argc > i ? static_cast<int64>(std::atoll(argv[i])) : fallback; };
  const int64 tokens = argument(1, 65536), hidden = argument(2, 1024), intermediate = argument(3, 3072),
              vocabulary = argument(4, 151936);
  const OpTable& ops = cuda_op_table();
  std::size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "memory in use");
  fmt::print("of {} MiB the context alone has left {}\n", total >> 20, free >> 20);
  Bench bench;
  elementwise(bench, ops, tokens, hidden, intermediate);
  vocabulary_ops(bench, ops, tokens, hidden, vocabulary);
  state_ops(bench, ops, int64{1} << 28);
  products(bench, ops, tokens, hidden, intermediate);
  for (const int64 heads : {2, 8}) {
    attention(bench, ops, 65536, 65536, heads, true);
    attention(bench, ops, 65536, 131072, heads, false);
  }
  fmt::print("after all ops {:.0f} MiB more are in use (scratch, libraries, kernels)\n", used_mib(free));
  return 0;
}

}  // namespace
}  // namespace megatoken

int main(int argc, char** argv) {
  try {
    return megatoken::run(argc, argv);
  } catch (const megatoken::Error& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return static_cast<int>(e.code());
  }
}
