// Forward: n = x r weight with r = 1 / sqrt(mean(x^2) + eps) (n = x without a weight), then the rotation, all in float32.
// Backward: dn is dy rotated back; with xn = x r and g = dn weight, dx = r (g - xn mean(g xn)) and dweight += sum over
// tokens and heads of dn xn.
//
// A group of `lanes` neighbouring threads owns a token and walks over its heads; a lane owns eight columns of the first
// half of a head and the eight that they are rotated with, and works out their sines and cosines once.
#include "ops/cuda/column_sums.h"
#include "ops/cuda/launch.cuh"
#include "ops/op_table_cuda.h"

namespace megatoken {
namespace {

using namespace cuda;

constexpr int kThreads = 256;
constexpr int64 kMostHeadDim = 2 * 32 * kPack;
constexpr int64 kMostBlocks = 1024;  // that leave a partial sum of dweight

// Right to 1 ulp of float32 for every float32 angle under 2^31. The quadrant is taken off in float64 (Cody and Waite,
// pi/2 in three parts); the polynomials are minimax (Remez) on [0, pi/4] with relative errors 4.6e-12 and 6.7e-14.
__device__ void sincos_of(float angle, float& sine, float& cosine) {
  constexpr double kShift = 0x1.8p52;  // rounds to an integer, which then stands in the low bits
  const double x = angle;
  const double shifted = x * 0.63661977236758134 + kShift;
  const double quarters = shifted - kShift;
  const auto quadrant = static_cast<unsigned>(__double_as_longlong(shifted));
  double r = x - quarters * 0x1.921fbp0;
  r = r - quarters * 0x5.4442p-24;
  r = r - quarters * 0x1.a308d313198a3p-41;
  const double z = r * r;
  double s = z * 2.71705463894538435e-6 - 1.98391676665813363e-4;
  s = s * z + 8.33332865443560917e-3;
  s = s * z - 1.66666666300734506e-1;
  s = s * z * r + r;
  double c = z * -2.71669778168713356e-7 + 2.47988300455808227e-5;
  c = c * z - 1.38888798645051036e-3;
  c = c * z + 4.16666665323033020e-2;
  c = c * z - 4.99999999992616962e-1;
  c = c * z + 1.0;
  const bool swap = (quadrant & 1u) != 0;
  const double a = swap ? c : s;
  const double b = swap ? s : c;
  sine = static_cast<float>((quadrant & 2u) != 0 ? -a : a);
  cosine = static_cast<float>(((quadrant + 1) & 2u) != 0 ? -b : b);
}

struct Tables {
  const std::int32_t* positions;
  int64 position_stride;
  const std::int32_t* index;  // null: table 0
  int64 index_stride;
  const float* frequency;
  int64 frequency_stride;
  int64 num_tables;
  float attention_factor;
  float eps;
  int64 tokens;
  int64 heads;
  int64 half;   // head_dim / 2
  int lanes;    // of a token
  bool halves_aligned;  // half is a multiple of kPack
};

// This lane's part of a head.
struct Lane {
  int64 token;
  int64 col;    // of the first half
  int64 count;  // columns that exist, at most kPack; 0: none
};

__device__ Lane lane_of(const Tables& t, int64 first_token) {
  const int lane = static_cast<int>(threadIdx.x) % t.lanes;
  const int64 col = static_cast<int64>(lane) * kPack;
  const int64 token = first_token + threadIdx.x / t.lanes;
  return {token, col, token < t.tokens ? min(static_cast<int64>(kPack), max(t.half - col, int64{0})) : 0};
}

__device__ void angles(const Tables& t, const Lane& lane, float (&sine)[kPack], float (&cosine)[kPack]) {
#pragma unroll
  for (int i = 0; i < kPack; ++i) sine[i] = cosine[i] = 0;
  if (lane.count == 0) return;
  const auto position = static_cast<float>(t.positions[lane.token * t.position_stride]);
  const int64 table = t.index == nullptr ? 0 : t.index[lane.token * t.index_stride];
  if (table < 0 || table >= t.num_tables) __trap();
  const float* frequency = t.frequency + table * t.frequency_stride + lane.col;
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    if (i >= lane.count) continue;
    sincos_of(position * frequency[i], sine[i], cosine[i]);
    sine[i] *= t.attention_factor;
    cosine[i] *= t.attention_factor;
  }
}

template <typename T>
__device__ void load_halves(const Tables& t, const Rows<const T>& x, const Lane& lane, int64 head, float (&a)[kPack],
                            float (&b)[kPack]) {
  const bool aligned = x.aligned && t.halves_aligned;
  const T* p = x.data + (lane.count > 0 ? lane.token * x.stride + head * 2 * t.half + lane.col : 0);
  load8(p, lane.count, aligned, a);
  load8(p + t.half, lane.count, aligned, b);
}

template <typename T>
__device__ void store_halves(const Tables& t, const Rows<T>& y, const Lane& lane, int64 head, const float (&a)[kPack],
                             const float (&b)[kPack]) {
  if (lane.count == 0) return;
  const bool aligned = y.aligned && t.halves_aligned;
  T* p = y.row(lane.token) + head * 2 * t.half + lane.col;
  store8(p, lane.count, aligned, a);
  store8(p + t.half, lane.count, aligned, b);
}

__device__ void load_weight(const Tables& t, const Rows<const Bf16>& weight, const Lane& lane, float (&a)[kPack],
                            float (&b)[kPack]) {
  const bool aligned = weight.aligned && t.halves_aligned;
  const int64 col = min(lane.col, t.half);
  load8(weight.data + col, t.half - col, aligned, a);
  load8(weight.data + t.half + col, t.half - col, aligned, b);
}

__device__ float inverse_rms(const Tables& t, const float (&a)[kPack], const float (&b)[kPack]) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kPack; ++i) sum += a[i] * a[i] + b[i] * b[i];
  return 1.0f / sqrtf(sum_lanes(sum, t.lanes) / static_cast<float>(2 * t.half) + t.eps);
}

// y may be x.
__global__ void norm_rope_kernel(Tables t, Rows<const Bf16> x, Rows<const Bf16> weight, Rows<Bf16> y) {
  const Lane lane = lane_of(t, static_cast<int64>(blockIdx.x) * (kThreads / t.lanes));
  float sine[kPack], cosine[kPack], weight_a[kPack], weight_b[kPack];
  angles(t, lane, sine, cosine);
  const bool norm = weight.data != nullptr;
  if (norm) load_weight(t, weight, lane, weight_a, weight_b);
  for (int64 head = 0; head < t.heads; ++head) {
    float a[kPack], b[kPack];
    load_halves(t, x, lane, head, a, b);
    if (norm) {
      const float r = inverse_rms(t, a, b);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        a[i] = a[i] * r * weight_a[i];
        b[i] = b[i] * r * weight_b[i];
      }
    }
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const float first = a[i], second = b[i];
      a[i] = first * cosine[i] - second * sine[i];
      b[i] = second * cosine[i] + first * sine[i];
    }
    store_halves(t, y, lane, head, a, b);
  }
}

// dx may be dy. partial: [gridDim.x][head_dim], unused without a norm.
template <typename Dy>
__global__ void norm_rope_backward_kernel(Tables t, Rows<const Bf16> x, Rows<const Bf16> weight, Rows<const Dy> dy,
                                          Rows<Bf16> dx, float* partial) {
  const bool norm = weight.data != nullptr;
  const int64 tokens_at_once = kThreads / t.lanes;
  float weight_a[kPack], weight_b[kPack], sum_a[kPack] = {}, sum_b[kPack] = {};
  if (norm) load_weight(t, weight, lane_of(t, 0), weight_a, weight_b);
  for (int64 first = static_cast<int64>(blockIdx.x) * tokens_at_once; first < t.tokens;
       first += static_cast<int64>(gridDim.x) * tokens_at_once) {
    const Lane lane = lane_of(t, first);
    float sine[kPack], cosine[kPack];
    angles(t, lane, sine, cosine);
    for (int64 head = 0; head < t.heads; ++head) {
      float da[kPack], db[kPack];
      load_halves(t, dy, lane, head, da, db);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        const float first_half = da[i], second_half = db[i];
        da[i] = first_half * cosine[i] + second_half * sine[i];
        db[i] = second_half * cosine[i] - first_half * sine[i];
      }
      if (norm) {
        float a[kPack], b[kPack];
        load_halves(t, x, lane, head, a, b);
        const float r = inverse_rms(t, a, b);
        float dot = 0;
#pragma unroll
        for (int i = 0; i < kPack; ++i) dot += da[i] * weight_a[i] * (a[i] * r) + db[i] * weight_b[i] * (b[i] * r);
        const float mean = sum_lanes(dot, t.lanes) / static_cast<float>(2 * t.half);
#pragma unroll
        for (int i = 0; i < kPack; ++i) {
          const float normed_a = a[i] * r, normed_b = b[i] * r;
          if (i < lane.count) {
            sum_a[i] += da[i] * normed_a;
            sum_b[i] += db[i] * normed_b;
          }
          da[i] = r * (da[i] * weight_a[i] - normed_a * mean);
          db[i] = r * (db[i] * weight_b[i] - normed_b * mean);
        }
      }
      store_halves(t, dx, lane, head, da, db);
    }
  }
  if (!norm) return;
  // Lane by lane over the groups of the block, in order.
  __shared__ float shared[kThreads][kPack + 1];
  for (int half = 0; half < 2; ++half) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kPack; ++i) shared[threadIdx.x][i] = half == 0 ? sum_a[i] : sum_b[i];
    __syncthreads();
    for (int64 col = threadIdx.x; col < t.half; col += kThreads) {
      float total = 0;
      for (int group = 0; group < kThreads / t.lanes; ++group)
        total += shared[group * t.lanes + static_cast<int>(col / kPack)][col % kPack];
      partial[blockIdx.x * 2 * t.half + half * t.half + col] = total;
    }
  }
}

Tables tables_of(const NormRope& op, const View& rows) {
  check(op.head_dim <= kMostHeadDim, "norm_rope: head_dim {}, at most {} on CUDA", op.head_dim, kMostHeadDim);
  Tables t{};
  t.positions = op.positions.as<const std::int32_t>();
  t.position_stride = op.positions.row_stride;
  if (!op.frequency_index.absent()) {
    t.index = op.frequency_index.as<const std::int32_t>();
    t.index_stride = op.frequency_index.row_stride;
  }
  t.frequency = op.inverse_frequency.as<const float>();
  t.frequency_stride = op.inverse_frequency.row_stride;
  t.num_tables = op.inverse_frequency.rows;
  t.attention_factor = op.attention_factor;
  t.eps = op.eps;
  t.tokens = rows.rows;
  t.heads = rows.cols / op.head_dim;
  t.half = op.head_dim / 2;
  t.lanes = static_cast<int>(power_of_2_from(ceil_div(t.half, kPack), 1, 32));
  t.halves_aligned = t.half % kPack == 0;
  return t;
}

}  // namespace

void norm_rope_cuda(Stream& stream, const NormRope& op) {
  validate(op);
  require_bf16("norm_rope", "x", op.x);
  if (op.x.empty()) return;
  CudaStream& cuda = cuda_stream(stream);
  const Tables t = tables_of(op, op.x);
  norm_rope_kernel<<<grid_size(ceil_div(t.tokens, kThreads / t.lanes)), kThreads, 0, cuda.native()>>>(
      t, rows_of<const Bf16>(op.x), rows_of<const Bf16>(op.weight), rows_of<Bf16>(op.y));
  cuda.launched("norm_rope");
}

void norm_rope_backward_cuda(Stream& stream, const NormRopeBackward& op) {
  validate(op);
  require_bf16("norm_rope_backward", "dx", op.dx);
  if (op.dx.empty()) return;
  CudaStream& cuda = cuda_stream(stream);
  const Tables t = tables_of(op.forward, op.dx);
  const bool norm = !op.forward.weight.absent();
  const int64 groups = ceil_div(t.tokens, kThreads / t.lanes);
  const int64 blocks = norm ? num_partials(cuda, groups, op.forward.head_dim, 1, kMostBlocks) : groups;
  with_float_type(op.dy.dtype, [&](auto dy) {
    using Dy = decltype(dy);
    norm_rope_backward_kernel<Dy><<<grid_size(blocks), kThreads, 0, cuda.native()>>>(
        t, rows_of<const Bf16>(op.forward.x), rows_of<const Bf16>(op.forward.weight), rows_of<const Dy>(op.dy),
        rows_of<Bf16>(op.dx), static_cast<float*>(cuda.scratch()));
  });
  if (norm) add_partials(cuda, blocks, op.forward.head_dim, op.dweight.as<float>());
  cuda.launched("norm_rope_backward");
}

}  // namespace megatoken
