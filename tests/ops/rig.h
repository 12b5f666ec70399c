// The rig of the op tests: tensors in odd layouts on a device, poisoned outputs, guarded surroundings. Any backend is
// tested by handing its device and op table in.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "device/device.h"
#include "ops/op_table.h"
#include "ops/reference.h"

namespace megatoken {

// OpenMP threads in tests: GCC's OpenMP runtime is not instrumented for the thread sanitizer.
#if defined(__SANITIZE_THREAD__)
inline constexpr int kTestThreads = 1;
#else
inline constexpr int kTestThreads = 3;
#endif

struct Tensor {
  std::string name;
  DType dtype = DType::f32;
  int64 rows = 0, cols = 0;
  int64 left = 0;    // guard columns before the view
  int64 window = 0;  // guard, view and guard columns
  int64 stride = 0;  // on the device
  bool written = false;
  bool scratch = false;  // what it holds afterwards is nobody's business
  std::vector<std::byte> before;  // [rows][window]
  std::vector<std::byte> after;
  Memory memory;

  View view() const { return View(memory.data() + left * size_of(dtype), dtype, rows, cols, stride); }
  operator View() const { return view(); }
  std::byte* at(std::vector<std::byte>& image, int64 row, int64 col) const {
    return image.data() + (row * window + left + col) * size_of(dtype);
  }
};

inline double read_element(DType dtype, const std::byte* p) {
  const auto as = [p]<typename T>(T value) {
    std::memcpy(&value, p, sizeof(value));
    return value;
  };
  switch (dtype) {
    case DType::f32:
      return static_cast<double>(as(float{}));
    case DType::bf16:
      return static_cast<double>(static_cast<float>(bf16::from_bits(as(std::uint16_t{}))));
    case DType::f64:
      return as(double{});
    case DType::i32:
      return as(std::int32_t{});
    case DType::u16:
      return as(std::uint16_t{});
    default:
      return as(std::uint8_t{});
  }
}

inline void write_element(DType dtype, std::byte* p, double value) {
  const auto put = [p](auto v) { std::memcpy(p, &v, sizeof(v)); };
  switch (dtype) {
    case DType::f32:
      return put(static_cast<float>(value));
    case DType::bf16:
      return put(bf16(static_cast<float>(value)));
    case DType::f64:
      return put(value);
    case DType::i32:
      return put(static_cast<std::int32_t>(value));
    case DType::u16:
      return put(static_cast<std::uint16_t>(value));
    default:
      return put(static_cast<std::uint8_t>(value));
  }
}

// How tensors lie in memory.
enum class Layout {
  strided,  // a few guard columns on either side
  huge,     // as strided, and rows so far apart that offsets pass 2^31 elements
  aligned,  // guarded too, every row on a boundary of 128 bytes or more
};

class Rig {
 public:
  using Allocate = std::function<Memory(int64 bytes)>;

  Rig(Device& device, const OpTable& table, std::uint64_t seed, Layout layout = Layout::strided, Allocate allocate = {})
      : ops(table),
        device_(device),
        stream_(device.create_stream(StreamMode::in_order_inline)),
        random_(seed, 1),
        layout_(layout),
        allocate_(std::move(allocate)) {
    if (!allocate_) allocate_ = [this](int64 bytes) { return device_.allocate(bytes, "test tensor"); };
  }

  const OpTable& ops;

  // Of the tensors made from now on.
  void set_layout(Layout layout) { layout_ = layout; }

  std::uint64_t draw(std::uint64_t bound) { return random_.below(next_++, bound); }
  double uniform() { return static_cast<double>(random_.uniform(next_++)); }
  double normal() { return static_cast<double>(random_.normal(next_++)); }

  // Standard normal times scale. inout: the op writes it too.
  Tensor& random(const std::string& name, int64 rows, int64 cols, DType dtype, double scale = 1) {
    return add(name, rows, cols, dtype, [&] { return scale * normal(); });
  }
  Tensor& inout(const std::string& name, int64 rows, int64 cols, DType dtype, double scale = 1) {
    Tensor& t = random(name, rows, cols, dtype, scale);
    t.written = true;
    return t;
  }
  // An output: NaN before (255 in integers).
  Tensor& output(const std::string& name, int64 rows, int64 cols, DType dtype) {
    Tensor& t = add(name, rows, cols, dtype, [] { return std::numeric_limits<double>::quiet_NaN(); });
    t.written = true;
    return t;
  }
  // Scratch of an op, aligned as the contract asks, guarded on both sides.
  View workspace(int64 bytes) {
    Tensor& t = add(
        "workspace", 1, bytes, DType::u8, [] { return 255.0; }, Placement::aligned);
    t.written = true;
    t.scratch = true;
    return t;
  }
  // [n, 1] i32 in [0, bound).
  Tensor& indices(const std::string& name, int64 n, int64 bound) {
    return add(name, n, 1, DType::i32, [&] { return static_cast<double>(draw(static_cast<std::uint64_t>(bound))); });
  }
  Tensor& filled(const std::string& name, const Matrix& values, DType dtype) {
    std::size_t i = 0;
    return add(name, values.rows, values.cols, dtype, [&] { return values.data[i++]; });
  }

  static Matrix values(Tensor& t) { return to_matrix(t, t.before); }
  static Matrix results(Tensor& t) { return to_matrix(t, t.after); }

  // Uploads everything, runs, downloads, and checks that nothing but the written views has changed.
  void run(const std::function<void(Stream&)>& op) {
    stream_->submit([&](Stream& s) {
      for (Tensor& t : tensors_)
        for (int64 i = 0; i < t.rows; ++i) s.copy(device_row(t, i), t.before.data() + row_bytes(t) * i, row_bytes(t));
      op(s);
      for (Tensor& t : tensors_) {
        t.after.resize(t.before.size());
        for (int64 i = 0; i < t.rows; ++i) s.copy(t.after.data() + row_bytes(t) * i, device_row(t, i), row_bytes(t));
      }
    });
    stream_->synchronize();
    for (Tensor& t : tensors_) check_surroundings(t);
  }

  // As run, but the op must throw InternalError naming `words` and must not have written anything.
  void run_refused(const std::function<void(Stream&)>& op, const std::string& words) {
    run([&](Stream& s) {
      try {
        op(s);
        ADD_FAILURE() << "not refused: " << words;
      } catch (const InternalError& e) {
        EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
      }
    });
    for (Tensor& t : tensors_) EXPECT_EQ(t.before, t.after) << t.name << " was written by a refused op";
  }

  // ||a - b|| <= tolerance ||b||, and no element further off than 20 tolerances of itself plus the tensor's rms.
  void expect_close(Tensor& t, const Matrix& expected, double tolerance) {
    const Matrix got = results(t);
    ASSERT_EQ(got.rows, expected.rows);
    ASSERT_EQ(got.cols, expected.cols);
    if (got.data.empty()) return;
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < got.data.size(); ++i) {
      error += square(got.data[i] - expected.data[i]);
      norm += square(expected.data[i]);
    }
    EXPECT_LE(std::sqrt(error), tolerance * std::sqrt(norm) + 1e-30) << t.name;
    const double rms = std::sqrt(norm / static_cast<double>(got.data.size()));
    int shown = 0;
    for (std::size_t i = 0; i < got.data.size() && shown < 5; ++i) {
      const double allowed = 20 * tolerance * (std::fabs(expected.data[i]) + rms) + 1e-30;
      if (std::fabs(got.data[i] - expected.data[i]) <= allowed) continue;
      ++shown;
      ADD_FAILURE() << t.name << '[' << i / static_cast<std::size_t>(got.cols) << ", "
                    << i % static_cast<std::size_t>(got.cols) << "] is " << got.data[i] << ", not " << expected.data[i];
    }
  }

  // Everything written, to compare runs bit by bit.
  std::vector<std::byte> written_bytes() const {
    std::vector<std::byte> all;
    for (const Tensor& t : tensors_)
      if (t.written && !t.scratch) all.insert(all.end(), t.after.begin(), t.after.end());
    return all;
  }

 private:
  static double square(double x) { return x * x; }
  static int64 row_bytes(const Tensor& t) { return t.window * size_of(t.dtype); }
  static std::byte* device_row(const Tensor& t, int64 i) { return t.memory.data() + i * t.stride * size_of(t.dtype); }

  static Matrix to_matrix(Tensor& t, std::vector<std::byte>& image) {
    Matrix m(t.rows, t.cols);
    for (int64 i = 0; i < t.rows; ++i)
      for (int64 j = 0; j < t.cols; ++j) m(i, j) = read_element(t.dtype, t.at(image, i, j));
    return m;
  }

  enum class Placement { anywhere, aligned };

  Tensor& add(const std::string& name, int64 rows, int64 cols, DType dtype, const std::function<double()>& value,
              Placement placement = Placement::anywhere) {
    Tensor& t = tensors_.emplace_back();
    t.name = name;
    t.dtype = dtype;
    t.rows = rows;
    t.cols = cols;
    t.left = placement == Placement::aligned ? 256 / size_of(dtype) : static_cast<int64>(draw(2) * (1 + draw(17)));
    t.window = t.left + cols + static_cast<int64>(draw(2) * (1 + draw(9)));
    t.stride = t.window + static_cast<int64>(draw(2) * draw(30));
    if (layout_ == Layout::aligned) {
      t.left = 64;
      t.window = t.left + cols + static_cast<int64>(draw(9));
      t.stride = (t.window + 63) / 64 * 64 + static_cast<int64>(64 * draw(3));
    }
    if (layout_ == Layout::huge && rows > 1) t.stride += (int64{1} << 31) / (rows - 1);
    t.before.resize(static_cast<std::size_t>(rows * row_bytes(t)), std::byte{0xA5});
    for (int64 i = 0; i < rows; ++i)
      for (int64 j = 0; j < cols; ++j) write_element(dtype, t.at(t.before, i, j), value());
    // A little more than needed, so that a view of no rows still points somewhere.
    t.memory = allocate_((std::max<int64>(rows, 1) * t.stride + 1) * size_of(dtype));
    return t;
  }

  void check_surroundings(Tensor& t) {
    if (!t.written) {
      EXPECT_EQ(t.before, t.after) << t.name << " is an input and was written";
      return;
    }
    const auto size = static_cast<std::size_t>(size_of(t.dtype));
    for (int64 i = 0; i < t.rows; ++i) {
      const std::byte* before = t.before.data() + row_bytes(t) * i;
      const std::byte* after = t.after.data() + row_bytes(t) * i;
      const auto left = static_cast<std::size_t>(t.left) * size;
      const auto end = static_cast<std::size_t>(t.left + t.cols) * size;
      const auto all = static_cast<std::size_t>(row_bytes(t));
      ASSERT_TRUE(std::equal(before, before + left, after)) << t.name << ": bytes before row " << i << " were written";
      ASSERT_TRUE(std::equal(before + end, before + all, after + end))
          << t.name << ": bytes after row " << i << " were written";
    }
  }

  Device& device_;
  std::unique_ptr<Stream> stream_;
  Random random_;
  std::uint64_t next_ = 0;
  Layout layout_;
  Allocate allocate_;
  std::deque<Tensor> tensors_;  // references stay good
};

// A row of the op table test.
struct OpCase {
  std::string name;
  std::function<void(Rig&)> run;
};

// What a result of this type may be off by: float32 sums of some hundred terms, or bf16's rounding.
inline double tolerance_of(DType dtype) { return dtype == DType::bf16 ? 3e-3 : 1e-6; }

inline std::string short_name(DType dtype) { return dtype == DType::f32 ? "f32" : "bf16"; }

inline const std::vector<DType>& float_types() {
  static const std::vector<DType> types = {DType::f32, DType::bf16};
  return types;
}

}  // namespace megatoken
