// What the op table's small, unaligned tensors don't reach: cuDNN's attention and cuBLASLt's fast kernels on aligned views,
// offsets beyond 2^31 elements, several threads at once. Large results are compared with the plain kernels', which the op
// table has checked.
#include <thread>

#include "device/cuda/cuda_stream.h"
#include "ops/cuda/attention_plain.h"
#include "ops/cuda/gemm_plan.h"
#include "ops/cuda_rig.h"

namespace megatoken {
namespace {

// Matrices on the device, filled with standard normal numbers times a scale.
class Bench {
 public:
  explicit Bench(std::uint64_t seed = 1)
      : device_(create_cuda_device(0)), stream_(device_->create_stream(StreamMode::in_order_inline)), random_(seed, 2) {}

  CudaStream& stream() { return cuda_stream(*stream_); }

  View zeros(int64 rows, int64 cols, DType dtype, int64 stride = 0) {
    const View v(nullptr, dtype, rows, cols, std::max(stride, cols));
    memory_.push_back(device_->allocate(std::max<int64>(v.span_bytes(), 1), "test matrix"));
    stream_->submit([&](Stream& s) { s.fill_zero(memory_.back().data(), memory_.back().bytes()); });
    return View(memory_.back().data(), dtype, rows, cols, v.row_stride);
  }
  View random(int64 rows, int64 cols, DType dtype, double scale = 1, int64 stride = 0) {
    const View v = zeros(rows, cols, dtype, stride);
    std::vector<std::byte> values(static_cast<std::size_t>(v.bytes()));
    // A few thousand different numbers are enough, and quick.
    if (numbers_.empty())
      for (std::uint64_t i = 0; i < 9973; ++i) numbers_.push_back(random_.normal(i));
    for (int64 i = 0; i < v.elements(); ++i)
      write_element(dtype, values.data() + i * size_of(dtype), scale * static_cast<double>(numbers_[next_++ % 9973]));
    next_ += 131;
    move(v, values.data(), true);
    return v;
  }
  void fill(const View& v, const Matrix& m) {
    std::vector<std::byte> values(static_cast<std::size_t>(v.bytes()));
    for (int64 i = 0; i < v.elements(); ++i)
      write_element(v.dtype, values.data() + i * size_of(v.dtype), m.data[static_cast<std::size_t>(i)]);
    move(v, values.data(), true);
  }
  Matrix read(const View& v) {
    std::vector<std::byte> values(static_cast<std::size_t>(v.bytes()));
    move(v, values.data(), false);
    Matrix m(v.rows, v.cols);
    for (std::size_t i = 0; i < m.data.size(); ++i)
      m.data[i] = read_element(v.dtype, values.data() + i * static_cast<std::size_t>(size_of(v.dtype)));
    return m;
  }
  void run(const std::function<void(Stream&)>& task) {
    stream_->submit(task);
    stream_->synchronize();
  }

 private:
  void move(const View& v, std::byte* host, bool up) {
    const auto width = static_cast<std::size_t>(v.cols * size_of(v.dtype));
    const auto pitch = static_cast<std::size_t>(v.row_stride * size_of(v.dtype));
    run([&](Stream&) {
      const cudaError_t error =
          up ? cudaMemcpy2DAsync(v.data, pitch, host, width, width, static_cast<std::size_t>(v.rows),
                                 cudaMemcpyHostToDevice, stream().native())
             : cudaMemcpy2DAsync(host, width, v.data, pitch, width, static_cast<std::size_t>(v.rows),
                                 cudaMemcpyDeviceToHost, stream().native());
      ASSERT_EQ(error, cudaSuccess);
    });
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Random random_;
  std::vector<float> numbers_;
  std::size_t next_ = 0;
  std::deque<Memory> memory_;
};

void expect_near(const Matrix& got, const Matrix& expected, double tolerance, const char* what) {
  ASSERT_EQ(got.data.size(), expected.data.size());
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < got.data.size(); ++i) {
    error += (got.data[i] - expected.data[i]) * (got.data[i] - expected.data[i]);
    norm += expected.data[i] * expected.data[i];
  }
  EXPECT_LE(std::sqrt(error), tolerance * std::sqrt(norm)) << what;
  EXPECT_GT(norm, 0) << what;
}

class LargeOnCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }
};

struct Problem {
  AttentionForward forward;
  AttentionBackward backward;
};

// extra: columns between a row's end and the next row's begin, of q, o and dout, and half as many of k and v.
Problem attention_problem(Bench& bench, const AttentionCase& c, int64 extra) {
  Problem p;
  const int64 q_cols = c.heads * c.head_dim, k_cols = c.kv_heads * c.head_dim;
  const View q = bench.random(c.queries, q_cols, DType::bf16, 2, q_cols + extra);
  const View k = bench.random(c.keys, k_cols, DType::bf16, 2, k_cols + extra / 2);
  const View v = bench.random(c.keys, k_cols, DType::bf16, 1, k_cols + extra / 2);
  const View o = bench.zeros(c.queries, q_cols, DType::bf16, q_cols + extra);
  const View lse = bench.zeros(c.heads, c.queries, DType::f32, c.queries + 3);
  p.forward = {q, k, v, o, lse, {}, c.heads, c.kv_heads, c.head_dim, 1 / std::sqrt(static_cast<float>(c.head_dim)), c.mask()};
  p.forward.workspace = bench.zeros(1, cuda_op_table().attention_forward_workspace(p.forward), DType::u8);
  AttentionBackward& b = p.backward;
  b.q = q;
  b.k = k;
  b.v = v;
  b.o = o;
  b.lse = lse;
  b.dout = bench.random(c.queries, q_cols, DType::bf16, 1);
  b.dq = bench.random(c.queries, q_cols, DType::f32, 0.1);
  b.dk = bench.random(c.keys, k_cols, DType::f32, 0.1);
  b.dv = bench.random(c.keys, k_cols, DType::f32, 0.1);
  b.heads = c.heads;
  b.kv_heads = c.kv_heads;
  b.head_dim = c.head_dim;
  b.scale = p.forward.scale;
  b.mask = c.mask();
  b.workspace = bench.zeros(1, cuda_op_table().attention_backward_workspace(b), DType::u8);
  return p;
}

class CudnnAttention : public LargeOnCuda, public testing::WithParamInterface<AttentionCase> {};

TEST_P(CudnnAttention, EqualsReference) {
  const AttentionCase& c = GetParam();
  Bench bench;
  const Problem p = attention_problem(bench, c, 64);
  const auto shape = c.shape(static_cast<double>(p.forward.scale));
  bench.run([&](Stream& s) { cuda_op_table().attention_forward(s, p.forward); });
  const Matrix q = bench.read(p.forward.q), k = bench.read(p.forward.k), v = bench.read(p.forward.v);
  const auto expected = reference::attention(shape, q, k, v);
  const Matrix o = bench.read(p.forward.o), lse = bench.read(p.forward.lse);
  expect_near(o, expected.o, 4e-3, "o");
  expect_near(lse, expected.lse, 5e-6, "lse");

  const AttentionBackward& b = p.backward;
  const Matrix dq = bench.read(b.dq), dk = bench.read(b.dk), dv = bench.read(b.dv);
  bench.run([&](Stream& s) { cuda_op_table().attention_backward(s, b); });
  const auto gradient = reference::attention_backward(shape, q, k, v, o, lse, bench.read(b.dout));
  expect_near(bench.read(b.dq), sum_of(gradient.dq, dq), 6e-3, "dq");
  expect_near(bench.read(b.dk), sum_of(gradient.dk, dk), 6e-3, "dk");
  expect_near(bench.read(b.dv), sum_of(gradient.dv, dv), 6e-3, "dv");
}

INSTANTIATE_TEST_SUITE_P(
    Cases, CudnnAttention,
    testing::Values(AttentionCase{300, 700, 4, 2, 64, false}, AttentionCase{513, 513, 4, 1, 128, true},
                    AttentionCase{640, 640, 2, 2, 64, true}, AttentionCase{200, 501, 4, 2, 128, true},
                    AttentionCase{700, 33, 3, 1, 64, false}, AttentionCase{2, 9000, 4, 1, 128, false},
                    AttentionCase{200, 200, 2, 1, 80, true}, AttentionCase{200, 260, 2, 1, 96, false},
                    AttentionCase{300, 300, 2, 1, 256, true}, AttentionCase{9000, 2, 2, 1, 64, false},
                    AttentionCase{1, 20000, 2, 1, 64, false}, AttentionCase{40, 33000, 2, 1, 64, false}),
    [](const auto& row) { return row.param.name(); });

void expect_plain_gradients(Bench& bench, const AttentionBackward& b) {
  const Matrix dq = bench.read(b.dq), dk = bench.read(b.dk), dv = bench.read(b.dv);
  bench.run([&](Stream& s) { cuda_op_table().attention_backward(s, b); });
  const Matrix got_dq = bench.read(b.dq), got_dk = bench.read(b.dk), got_dv = bench.read(b.dv);
  bench.fill(b.dq, dq);
  bench.fill(b.dk, dk);
  bench.fill(b.dv, dv);
  bench.run([&](Stream& s) { cuda::attention_backward_plain(cuda_stream(s), b, b.workspace.as<float>()); });
  expect_near(got_dq, bench.read(b.dq), 6e-3, "dq");
  expect_near(got_dk, bench.read(b.dk), 6e-3, "dk");
  expect_near(got_dv, bench.read(b.dv), 6e-3, "dv");
}

void expect_plain_output(Bench& bench, const AttentionForward& f) {
  bench.run([&](Stream& s) { cuda_op_table().attention_forward(s, f); });
  const Matrix o = bench.read(f.o), lse = bench.read(f.lse);
  bench.run([&](Stream& s) { cuda::attention_forward_plain(cuda_stream(s), f); });
  expect_near(o, bench.read(f.o), 4e-3, "o");
  expect_near(lse, bench.read(f.lse), 5e-6, "lse");
}

// One stream's graphs, one after the other and again: none may be taken for another.
TEST_F(LargeOnCuda, ManyShapesOnOneStream) {
  Bench bench;
  const std::vector<AttentionCase> shapes = {
      {5000, 5000, 2, 1, 64, true},  {5000, 5000, 8, 1, 64, true},  {5000, 5000, 8, 4, 64, true},
      {5000, 5000, 8, 1, 64, false}, {5001, 4997, 8, 1, 64, false}, {9000, 5000, 2, 1, 64, false},
      {600, 5000, 2, 2, 64, false},  {600, 5000, 2, 2, 128, false}, {600, 600, 4, 1, 128, true},
      {590, 590, 4, 1, 128, true},   {600, 600, 8, 2, 128, true},   {590, 600, 8, 2, 128, false},
  };
  std::vector<Problem> problems;
  for (const AttentionCase& c : shapes) problems.push_back(attention_problem(bench, c, 64));
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      SCOPED_TRACE(shapes[i].name());
      expect_plain_output(bench, problems[i].forward);
      expect_plain_gradients(bench, problems[i].backward);
    }
  }
}

// Rows of q, o and dout up to 2.4e9 elements from the first: the backward must cut them.
TEST_F(LargeOnCuda, QueriesBeyond31Bits) {
  Bench bench;
  const AttentionCase c{590000, 300, 1, 1, 64, false};
  const Problem p = attention_problem(bench, c, 4096 - 64);
  expect_plain_output(bench, p.forward);
  expect_plain_gradients(bench, p.backward);
}

// The same for a causal square: pieces are rectangles and squares.
TEST_F(LargeOnCuda, CausalSquareThatIsCut) {
  Bench bench;
  const AttentionCase c{5000, 5000, 2, 1, 64, true};
  const Problem p = attention_problem(bench, c, (1 << 20) - 128);
  expect_plain_output(bench, p.forward);
  expect_plain_gradients(bench, p.backward);
}

// Keys enough for folding, o not contiguous.
TEST_F(LargeOnCuda, FoldedHeads) {
  Bench bench;
  const AttentionCase c{300, 40000, 4, 1, 128, false};
  const Problem p = attention_problem(bench, c, 512);
  expect_plain_output(bench, p.forward);
  expect_plain_gradients(bench, p.backward);
}

TEST(CudaAttentionWorkspace, NeverDecreases) {
  for (const bool causal : {false, true}) {
    for (const int64 heads : {1, 4}) {
      for (const int64 extra : {0, 4096}) {
        AttentionBackward b;
        b.heads = heads;
        b.kv_heads = 1;
        b.head_dim = 128;
        b.mask = causal ? AttentionMask::causal : AttentionMask::full;
        const auto bytes = [&](int64 queries, int64 keys) {
          b.q = b.o = b.dout = View(nullptr, DType::bf16, queries, heads * 128, heads * 128 + extra);
          b.k = b.v = View(nullptr, DType::bf16, keys, 128);
          AttentionForward f;
          f.q = b.q;
          f.k = f.v = b.k;
          f.heads = heads;
          f.kv_heads = 1;
          f.head_dim = 128;
          f.mask = b.mask;
          return std::pair(cuda_op_table().attention_forward_workspace(f), cuda_op_table().attention_backward_workspace(b));
        };
        const std::vector<int64> sizes = {0, 1, 2, 100, 129, 4000, 4096, 4097, 32767, 32768, 32769, 65536, 500000, 524288, 1 << 20, 1 << 22};
        for (std::size_t i = 0; i < sizes.size(); ++i) {
          for (std::size_t j = 1; j < sizes.size(); ++j) {
            const auto fewer_keys = bytes(sizes[i], sizes[j - 1]), more_keys = bytes(sizes[i], sizes[j]);
            EXPECT_LE(fewer_keys.first, more_keys.first) << sizes[i] << " x " << sizes[j];
            EXPECT_LE(fewer_keys.second, more_keys.second) << sizes[i] << " x " << sizes[j];
            const auto fewer_queries = bytes(sizes[j - 1], sizes[i]), more_queries = bytes(sizes[j], sizes[i]);
            EXPECT_LE(fewer_queries.first, more_queries.first) << sizes[j] << " x " << sizes[i];
            EXPECT_LE(fewer_queries.second, more_queries.second) << sizes[j] << " x " << sizes[i];
          }
        }
      }
    }
  }
}

// Tensor cores cut off what they add, always toward 0: the error of a sum grows with its length, 1e-9 a term on Hopper.
double sum_tolerance(int64 terms) { return 1e-6 + 2e-9 * static_cast<double>(terms); }

// The step's own products: strides of parameter slices, float32 sums added to in place, bf16 residuals.
TEST_F(LargeOnCuda, ProductsOfAStep) {
  Bench bench;
  struct Shape {
    int64 m, n, k;
    bool ta, tb;
    DType out;
    int addend;  // none, another matrix, d itself
  };
  for (const Shape& s : {Shape{1024, 3072, 1024, false, true, DType::bf16, 0}, Shape{1000, 1024, 2048, false, true, DType::bf16, 1},
                         Shape{1024, 1024, 3072, false, true, DType::bf16, 2}, Shape{3072, 1024, 1999, true, false, DType::f32, 2},
                         Shape{777, 1024, 6144, false, false, DType::f32, 0}, Shape{777, 1024, 512, false, false, DType::f32, 2},
                         Shape{64, 50257, 768, false, true, DType::f32, 0}, Shape{50257, 768, 64, true, false, DType::f32, 2}}) {
    const View a = bench.random(s.ta ? s.k : s.m, s.ta ? s.m : s.k, DType::bf16, 1, (s.ta ? s.m : s.k) + 64);
    const View b = bench.random(s.tb ? s.n : s.k, s.tb ? s.k : s.n, DType::bf16);
    const View c = bench.random(s.m, s.n, s.out), d = s.addend == 2 ? c : bench.zeros(s.m, s.n, s.out);
    const Matrix before = bench.read(d);
    Gemm op{a, b, d, {}, s.ta, s.tb};
    if (s.addend > 0) op.c = c;
    bench.run([&](Stream& stream) { cuda_op_table().gemm(stream, op); });
    const Matrix got = bench.read(d);
    bench.fill(d, before);
    bench.run([&](Stream& stream) { cuda::gemm_plain(cuda_stream(stream), op); });
    expect_near(got, bench.read(d), s.out == DType::bf16 ? 3e-3 : sum_tolerance(s.k), "d");
  }
}

TEST_F(LargeOnCuda, ProductsBeyond31Bits) {
  Bench bench;
  constexpr int64 rows = 590000, stride = 4096;
  const View x = bench.random(rows, 64, DType::bf16, 1, stride), y = bench.random(rows, 72, DType::bf16, 1, stride);
  const View gradient = bench.random(64, 72, DType::f32);
  const Matrix before = bench.read(gradient);
  const Gemm sum{x, y, gradient, gradient, true, false};  // a long sum
  bench.run([&](Stream& s) { cuda_op_table().gemm(s, sum); });
  const Matrix got = bench.read(gradient);
  bench.fill(gradient, before);
  bench.run([&](Stream& s) { cuda::gemm_plain(cuda_stream(s), sum); });
  expect_near(got, bench.read(gradient), 1e-4, "sum");  // 590,000 terms, in two pieces
  const View weight = bench.random(64, 72, DType::bf16);
  const Gemm rows_out{x, weight, y, {}, false, false};  // many rows
  bench.run([&](Stream& s) { cuda_op_table().gemm(s, rows_out); });
  const Matrix many = bench.read(y);
  bench.run([&](Stream& s) { cuda::gemm_plain(cuda_stream(s), rows_out); });
  expect_near(many, bench.read(y), 3e-3, "rows");
}

// Ranks as threads on one device: everything is the stream's own.
TEST_F(LargeOnCuda, ThreadsGetTheSameBits) {
  const auto work = [](Matrix& o, Matrix& d) {
    Bench bench(7);
    const Problem p = attention_problem(bench, {513, 513, 4, 1, 128, true}, 64);
    const View x = bench.random(500, 256, DType::bf16), w = bench.random(384, 256, DType::bf16);
    const View y = bench.zeros(500, 384, DType::bf16);
    for (int i = 0; i < 20; ++i)
      bench.run([&](Stream& s) {
        cuda_op_table().attention_forward(s, p.forward);
        cuda_op_table().gemm(s, {x, w, y, {}, false, true});
      });
    o = bench.read(p.forward.o);
    d = bench.read(y);
  };
  std::vector<Matrix> o(4), d(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) threads.emplace_back([&, t] { work(o[t], d[t]); });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t t = 1; t < 4; ++t) {
    EXPECT_EQ(o[t].data, o[0].data);
    EXPECT_EQ(d[t].data, d[0].data);
  }
}

}  // namespace
}  // namespace megatoken
