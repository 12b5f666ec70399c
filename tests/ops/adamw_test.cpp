#include <cmath>
#include <fstream>
#include <string>

#include "ops/rig.h"

namespace megatoken {
namespace {

float float_from(std::uint32_t bits) { return std::bit_cast<float>(bits); }
std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

TEST(SplitMaster, RoundTripsEveryPattern) {
  // All patterns of the low half around every edge of the high half, and a coarse walk through all of them.
  const auto expect_exact = [](std::uint32_t bits) {
    const SplitMaster split = split_master(float_from(bits));
    ASSERT_EQ(bits_of(join_master(split)), bits) << std::hex << bits;
  };
  for (const std::uint32_t high :
       {0x0000u, 0x0001u, 0x3F80u, 0x7F7Fu, 0x7F80u, 0x7FFFu, 0x8000u, 0xBF80u, 0xFF7Fu, 0xFFFFu})
    for (std::uint32_t low = 0; low < 0x10000u; ++low) expect_exact(high << 16 | low);
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 251)
    expect_exact(static_cast<std::uint32_t>(bits));
}

TEST(SplitMaster, WeightIsTheNearestAndTiesGoAwayFromZero) {
  EXPECT_EQ(split_master(float_from(0x3F808000u)).weight.bits, 0x3F81);  // tie; to even would be 0x3F80
  EXPECT_EQ(split_master(float_from(0xBF808000u)).weight.bits, 0xBF81);
  EXPECT_EQ(split_master(float_from(0x3F807FFFu)).weight.bits, 0x3F80);
  EXPECT_EQ(split_master(float_from(0x7F7FFFFFu)).weight.bits, 0x7F80);  // above bf16's largest
  EXPECT_EQ(split_master(INFINITY).weight.bits, 0x7F80);
  EXPECT_EQ(split_master(INFINITY).remainder, 0);
  EXPECT_EQ(split_master(-0.0f).weight.bits, 0x8000);
  const Random random(5, 0);
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const float master = random.normal(i);
    const float weight = static_cast<float>(split_master(master).weight);
    ASSERT_LE(std::fabs(weight - master), std::ldexp(std::fabs(master), -8)) << master;
  }
}

struct Golden {
  explicit Golden(const std::string& path) : file(path) { EXPECT_TRUE(file.good()) << path; }
  double next() {
    std::string word;
    file >> word;
    return std::strtod(word.c_str(), nullptr);
  }
  Matrix row(int64 n) {
    Matrix m(1, n);
    for (double& x : m.data) x = next();
    return m;
  }
  std::ifstream file;
};

// How many float32 values apart.
int64 ulps(double a, double b) {
  const auto place = [](double x) {
    const auto bits = std::bit_cast<std::int32_t>(static_cast<float>(x));
    return bits < 0 ? -static_cast<int64>(bits & 0x7FFFFFFF) : static_cast<int64>(bits);
  };
  return std::abs(place(a) - place(b));
}

void expect_ulps(const Matrix& got, const Matrix& expected, int64 allowed, const char* what, int64 step) {
  for (std::size_t i = 0; i < got.data.size(); ++i)
    EXPECT_LE(ulps(got.data[i], expected.data[i]), allowed)
        << what << '[' << i << "] of step " << step << " is " << got.data[i] << ", not " << expected.data[i];
}

// One step at a time from torch's own state, so that differences do not add up.
TEST(Adamw, EqualsTorch) {
  Golden golden(std::string(MEGATOKEN_TEST_DATA) + "/ops/golden/adamw.txt");
  const auto n = static_cast<int64>(golden.next());
  const auto steps = static_cast<int64>(golden.next());
  ASSERT_GT(n * steps, 0);
  Adamw op;
  op.beta1 = golden.next();
  op.beta2 = golden.next();
  op.eps = golden.next();
  op.weight_decay = golden.next();
  Matrix weight = golden.row(n), average(1, n), square(1, n);
  const auto device = create_cpu_device(kTestThreads);
  for (op.step = 1; op.step <= steps; ++op.step) {
    op.lr = golden.next();
    Matrix gradient = golden.row(n);
    const Matrix expected_weight = golden.row(n), expected_average = golden.row(n), expected_square = golden.row(n);
    for (const DType type : float_types()) {
      SCOPED_TRACE(short_name(type));
      Rig rig(*device, cpu_op_table(), 1);
      Matrix high(1, n), low(1, n);
      for (int64 i = 0; i < n; ++i) {
        const SplitMaster split = split_master(static_cast<float>(weight(0, i)));
        high(0, i) = static_cast<double>(static_cast<float>(split.weight));
        low(0, i) = split.remainder;
      }
      Tensor& w = type == DType::f32 ? rig.filled("weight", weight, type) : rig.filled("weight", high, type);
      Tensor& remainder = rig.filled("remainder", low, DType::u16);
      Matrix scaled = gradient;
      for (double& g : scaled.data) g *= 4;
      Tensor& grad = rig.filled("grad", scaled, DType::f32);
      Tensor& m = rig.filled("exp_avg", average, DType::f32);
      Tensor& v = rig.filled("exp_avg_sq", square, DType::f32);
      w.written = m.written = v.written = true;
      op.weight = w;
      op.remainder = type == DType::bf16 ? remainder.view() : View();
      remainder.written = type == DType::bf16;
      op.grad = grad;
      op.exp_avg = m;
      op.exp_avg_sq = v;
      op.gradient_scale = 0.25f;
      rig.run([&](Stream& s) { rig.ops.adamw(s, op); });
      Matrix got = Rig::results(w);
      if (type == DType::bf16) {
        const Matrix rest = Rig::results(remainder);
        for (int64 i = 0; i < n; ++i) {
          const SplitMaster split{bf16(static_cast<float>(got(0, i))), static_cast<std::uint16_t>(rest(0, i))};
          got(0, i) = static_cast<double>(join_master(split));
        }
      }
      expect_ulps(got, expected_weight, 2, "weight", op.step);
      expect_ulps(Rig::results(m), expected_average, 2, "exp_avg", op.step);
      expect_ulps(Rig::results(v), expected_square, 2, "exp_avg_sq", op.step);
    }
    weight = expected_weight;
    average = expected_average;
    square = expected_square;
  }
}

TEST(Adamw, SameBitsOnAnyThreadsAndTinyUpdatesMoveTheMaster) {
  constexpr int64 n = 200001;
  std::vector<std::byte> first;
  for (const int threads : {1, kTestThreads}) {
    const auto device = create_cpu_device(threads);
    Rig rig(*device, cpu_op_table(), 3);
    Tensor& weight = rig.inout("weight", 1, n, DType::bf16);
    Tensor& remainder = rig.filled("remainder", Matrix(1, n), DType::u16);
    remainder.written = true;
    Tensor& grad = rig.random("grad", 1, n, DType::f32);
    Tensor& m = rig.filled("exp_avg", Matrix(1, n), DType::f32);
    Tensor& v = rig.filled("exp_avg_sq", Matrix(1, n), DType::f32);
    m.written = v.written = true;
    Adamw op;
    op.weight = weight;
    op.remainder = remainder;
    op.grad = grad;
    op.exp_avg = m;
    op.exp_avg_sq = v;
    op.lr = 1e-6;
    rig.run([&](Stream& s) { rig.ops.adamw(s, op); });
    const Matrix moved = Rig::results(remainder);
    int64 changed = 0;
    for (const double r : moved.data) changed += r != 0 ? 1 : 0;
    EXPECT_GT(changed, n * 9 / 10);  // far below bf16's resolution, yet not lost
    if (first.empty())
      first = rig.written_bytes();
    else
      EXPECT_EQ(first, rig.written_bytes());
  }
}

}  // namespace
}  // namespace megatoken
