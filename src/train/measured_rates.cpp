// doctor --measure: what this machine reaches, kept for plans.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <tuple>

#include "base/error.h"
#include "io/file.h"
#include "io/json.h"
#include "ops/op_table.h"
#include "train/machine_rates.h"

namespace megatoken {
namespace {

using Clock = std::chrono::steady_clock;

struct Field {
  const char* name;
  double MachineRates::*rate;
  double scale;  // of the printed unit
  const char* unit;
};
constexpr Field kFields[] = {{"gemm_flops", &MachineRates::gemm_flops, 1e12, "TFLOP/s"},
                             {"attention_forward_flops", &MachineRates::attention_forward_flops, 1e12, "TFLOP/s"},
                             {"attention_backward_flops", &MachineRates::attention_backward_flops, 1e12, "TFLOP/s"},
                             {"memory_bytes", &MachineRates::memory_bytes, 1e9, "GB/s"},
                             {"h2d_bytes", &MachineRates::h2d_bytes, 1e9, "GB/s"},
                             {"d2h_bytes", &MachineRates::d2h_bytes, 1e9, "GB/s"},
                             {"duplex_bytes", &MachineRates::duplex_bytes, 1e9, "GB/s"}};

class Bench {
 public:
  Bench(bool on_cuda, int64 cores)
      : on_cuda_(on_cuda),
        device_(on_cuda ? create_cuda_device(0) : create_cpu_device(static_cast<int>(cores))),
        table_(on_cuda ? cuda_op_table() : cpu_op_table()),
        stream_(device_->create_stream(StreamMode::in_order_inline)),
        in_(device_->create_stream(StreamMode::own_thread)),
        out_(device_->create_stream(StreamMode::own_thread)) {}

  double gemm() {
    const int64 n = on_cuda_ ? 8192 : 768;
    const DType dtype = on_cuda_ ? DType::bf16 : DType::f32;
    const Gemm op{zeros(n, n, dtype), zeros(n, n, dtype), zeros(n, n, dtype), {}, false, true};
    return cost_of(op).flops / seconds([&](Stream& s) { table_.gemm(s, op); });
  }

  // Forward and backward of one head group, causal.
  std::pair<double, double> attention() {
    const int64 rows = on_cuda_ ? 65536 : 1024, heads = on_cuda_ ? 8 : 4, dim = on_cuda_ ? 128 : 64;
    const DType dtype = on_cuda_ ? DType::bf16 : DType::f32;
    AttentionForward f;
    f.q = zeros(rows, heads * dim, dtype);
    f.k = zeros(rows, dim, dtype);
    f.v = zeros(rows, dim, dtype);
    f.o = zeros(rows, heads * dim, dtype);
    f.lse = zeros(heads, rows, DType::f32);
    f.heads = heads;
    f.kv_heads = 1;
    f.head_dim = dim;
    f.scale = 1 / std::sqrt(static_cast<float>(dim));
    f.mask = AttentionMask::causal;
    f.workspace = zeros(1, table_.attention_forward_workspace(f), DType::u8);
    const double forward = cost_of(f).flops / seconds([&](Stream& s) { table_.attention_forward(s, f); });
    AttentionBackward b;
    b.q = f.q;
    b.k = f.k;
    b.v = f.v;
    b.o = f.o;
    b.lse = f.lse;
    b.dout = zeros(rows, heads * dim, dtype);
    b.dq = zeros(rows, heads * dim, DType::f32);
    b.dk = zeros(rows, dim, DType::f32);
    b.dv = zeros(rows, dim, DType::f32);
    b.heads = heads;
    b.kv_heads = 1;
    b.head_dim = dim;
    b.scale = f.scale;
    b.mask = f.mask;
    b.workspace = zeros(1, table_.attention_backward_workspace(b), DType::u8);
    return {forward, cost_of(b).flops / seconds([&](Stream& s) { table_.attention_backward(s, b); })};
  }

  double memory() {
    const int64 n = on_cuda_ ? int64{1} << 28 : int64{1} << 22;
    const Accumulate op{zeros(1, n, DType::f32), zeros(1, n, DType::f32)};
    return cost_of(op).bytes / seconds([&](Stream& s) { table_.accumulate(s, op); });
  }

  // To the device, from it, both at once (together).
  std::array<double, 3> copies() {
    const int64 bytes = on_cuda_ ? int64{1} << 30 : int64{1} << 25;
    const Memory host = device_->allocate_host(2 * bytes, "measured copies");
    const View device = zeros(2, bytes, DType::u8);
    const auto in = [&](Stream& s) { s.copy(device.data, host.data(), bytes); };
    const auto out = [&](Stream& s) { s.copy(host.data() + bytes, device.data + bytes, bytes); };
    const auto both = [&] {
      in_->submit(in);
      out_->submit(out);
      in_->synchronize();
      out_->synchronize();
    };
    const auto rate = static_cast<double>(bytes);
    return {rate / repeat([&] {
              in_->submit(in);
              in_->synchronize();
            }),
            rate / repeat([&] {
              out_->submit(out);
              out_->synchronize();
            }),
            2 * rate / repeat(both)};
  }

 private:
  View zeros(int64 rows, int64 cols, DType dtype) {
    memory_.push_back(device_->allocate(std::max<int64>(1, rows * cols * size_of(dtype)), "measured op"));
    const View view(memory_.back().data(), dtype, rows, cols);
    stream_->submit([&](Stream& s) { s.fill_zero(view.data, view.bytes()); });
    stream_->synchronize();
    return view;
  }

  // Of one run, sustained: the mean of the second half of some seconds of them.
  template <typename Work>
  double repeat(Work work) const {
    const double most = on_cuda_ ? 4.0 : 0.5;
    work();
    std::vector<double> times;
    for (double total = 0; total < most || times.size() < 4;) {
      const auto begin = Clock::now();
      work();
      times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
      total += times.back();
    }
    double sum = 0;
    const std::size_t half = times.size() / 2;
    for (std::size_t i = half; i < times.size(); ++i) sum += times[i];
    return sum / static_cast<double>(times.size() - half);
  }
  template <typename Op>
  double seconds(Op op) const {
    return repeat([&] {
      stream_->submit([&](Stream& s) { op(s); });
      stream_->synchronize();
    });
  }

  bool on_cuda_;
  std::unique_ptr<Device> device_;
  const OpTable& table_;
  std::unique_ptr<Stream> stream_, in_, out_;
  std::vector<Memory> memory_;
};

}  // namespace

std::string rates_file(bool on_cuda) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string base =
      cache != nullptr && *cache != 0 ? cache : std::string(home == nullptr ? "." : home) + "/.cache";
  return base + "/megatoken/rates-" + (on_cuda ? "cuda" : "cpu") + ".json";
}

std::optional<MachineRates> cached_rates(bool on_cuda, int64 cores_per_rank) {
  const std::string file = rates_file(on_cuda);
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return std::nullopt;
  MachineRates rates = default_rates(on_cuda, cores_per_rank);
  try {
    const nlohmann::json found = read_json_file(file);
    const double share =
        on_cuda ? 1 : static_cast<double>(std::max<int64>(1, cores_per_rank)) / found.at("cores").get<double>();
    for (const Field& field : kFields) {
      rates.*field.rate = found.at(field.name).get<double>();
      if (!(rates.*field.rate > 0) || !std::isfinite(rates.*field.rate)) return std::nullopt;
      const bool by_cores = field.rate != &MachineRates::h2d_bytes && field.rate != &MachineRates::d2h_bytes &&
                            field.rate != &MachineRates::duplex_bytes;
      if (by_cores) rates.*field.rate *= share;
    }
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return rates;
}

MachineRates measure_rates(bool on_cuda, int64 cores) {
  MachineRates rates = default_rates(on_cuda, cores);
  Bench bench(on_cuda, cores);
  rates.gemm_flops = bench.gemm();
  std::tie(rates.attention_forward_flops, rates.attention_backward_flops) = bench.attention();
  rates.memory_bytes = bench.memory();
  const auto [in, out, both] = bench.copies();
  rates.h2d_bytes = in;
  rates.d2h_bytes = out;
  rates.duplex_bytes = both;
  nlohmann::ordered_json kept;
  kept["cores"] = cores;
  for (const Field& field : kFields) kept[field.name] = rates.*field.rate;
  const std::string file = rates_file(on_cuda);
  make_directories(std::filesystem::path(file).parent_path().string());
  write_file_atomic(file, kept.dump(2) + "\n");
  return rates;
}

std::vector<std::string> describe(const MachineRates& rates) {
  std::vector<std::string> lines;
  for (const Field& field : kFields)
    lines.push_back(fmt::format("{}: {:.1f} {}", field.name, rates.*field.rate / field.scale, field.unit));
  return lines;
}

}  // namespace megatoken
