// The sort counts each expert's assignments in pieces of kSortPiece, turns the counts into the first sorted row of
// every (piece, expert), and ranks each piece's assignments in order: stable, and the same in every run.
#include "ops/cuda/launch.cuh"
#include "ops/experts_sort.h"
#include "ops/op_table_cuda.h"

namespace megatoken {
namespace {

using namespace cuda;

struct Assignments {
  const std::int32_t* experts;
  int64 stride;
  int64 count;
  int k;
  __device__ int operator()(int64 i) const { return experts[i / k * stride + i % k]; }
};

// counts: [pieces][E].
__global__ void count_kernel(Assignments assignments, int experts, std::int32_t* counts) {
  std::int32_t* const mine = counts + static_cast<int64>(blockIdx.x) * experts;
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += static_cast<int>(blockDim.x)) mine[e] = 0;
  __syncthreads();
  const int64 first = static_cast<int64>(blockIdx.x) * kSortPiece;
  const int64 last = min(assignments.count, first + kSortPiece);
  for (int64 i = first + threadIdx.x; i < last; i += blockDim.x) {
    const int e = assignments(i);
    if (e < 0 || e >= experts) __trap();
    atomicAdd(mine + e, 1);
  }
}

// One block. counts: on return the number of an expert's assignments in earlier pieces.
__global__ void offsets_kernel(std::int32_t* counts, int64 pieces, int experts, std::int32_t* offsets) {
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += static_cast<int>(blockDim.x)) {
    std::int32_t before = 0;
    for (int64 b = 0; b < pieces; ++b) {
      const std::int32_t count = counts[b * experts + e];
      counts[b * experts + e] = before;
      before += count;
    }
    offsets[e + 1] = before;
  }
  __syncthreads();
  if (threadIdx.x >= 32) return;
  std::int32_t total = 0;
  if (threadIdx.x == 0) offsets[0] = 0;
  for (int first = 0; first < experts; first += 32) {
    const int e = first + static_cast<int>(threadIdx.x);
    std::int32_t sum = e < experts ? offsets[e + 1] : 0;
    for (int step = 1; step < 32; step *= 2) {
      const std::int32_t left = __shfl_up_sync(0xFFFFFFFFu, sum, step);
      if (static_cast<int>(threadIdx.x) >= step) sum += left;
    }
    if (e < experts) offsets[e + 1] = total + sum;
    total += __shfl_sync(0xFFFFFFFFu, sum, 31);
  }
}

__global__ void rank_kernel(Assignments assignments, int experts, const std::int32_t* counts,
                            const std::int32_t* offsets, std::int32_t* source, int64 source_stride,
                            std::int32_t* position, int64 position_stride) {
  __shared__ std::int32_t expert_of[kSortPiece];
  const int64 first = static_cast<int64>(blockIdx.x) * kSortPiece;
  const int count = static_cast<int>(min(kSortPiece, assignments.count - first));
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x))
    expert_of[i] = assignments(first + i);
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += static_cast<int>(blockDim.x)) {
    std::int32_t row = offsets[e] + counts[static_cast<int64>(blockIdx.x) * experts + e];
    for (int i = 0; i < count; ++i) {
      if (expert_of[i] != e) continue;
      const int64 t = (first + i) / assignments.k;
      source[row * source_stride] = static_cast<std::int32_t>(t);
      position[t * position_stride + (first + i) % assignments.k] = row;
      ++row;
    }
  }
}

// The sorted row of assignment (t, s); position null: t.
struct Positions {
  const std::int32_t* data;
  int64 stride;
  int64 bound;
  __device__ int64 operator()(int64 t, int64 s) const {
    if (data == nullptr) return t;
    const std::int64_t row = data[t * stride + s];
    if (row < 0 || row >= bound) __trap();
    return row;
  }
};

Positions positions_of(const View& v, int64 bound) {
  return {v.absent() ? nullptr : v.as<const std::int32_t>(), v.row_stride, bound};
}

// out may be addend.
template <typename In, typename Out>
__global__ void combine_kernel(Rows<const In> rows, Positions position, const float* weights, int64 weights_stride,
                               Rows<const Out> addend, Rows<Out> out, int64 tokens, int64 cols, int64 across, int k) {
  const int64 t = tile_row(across);
  const int64 col = tile_col(across);
  if (t >= tokens || col >= cols) return;
  float sum[kPack] = {};
  for (int s = 0; s < k; ++s) {
    float x[kPack];
    load8(rows.row(position(t, s)) + col, cols - col, rows.aligned, x);
    const float w = weights == nullptr ? 1.0f : weights[t * weights_stride + s];
#pragma unroll
    for (int i = 0; i < kPack; ++i) sum[i] = fmaf(w, x[i], sum[i]);
  }
  if (addend.data != nullptr) {
    float x[kPack];
    load8(addend.row(t) + col, cols - col, addend.aligned, x);
#pragma unroll
    for (int i = 0; i < kPack; ++i) sum[i] += x[i];
  }
  store8(out.row(t) + col, cols - col, out.aligned, sum);
}

// A block a sorted row.
__global__ void expert_swiglu_backward_kernel(Rows<Bf16> gate_up, bool up_aligned, Rows<Bf16> dact, Positions position,
                                              const float* weights, int64 weights_stride, float* dweights,
                                              int64 dweights_stride, int64 cols, int k) {
  __shared__ float shared[32];
  const int64 t = static_cast<int64>(blockIdx.x) / k, s = static_cast<int64>(blockIdx.x) % k;
  const int64 row = position(t, s);
  const float w = weights[t * weights_stride + s];
  float dot = 0;
  for (int64 col = static_cast<int64>(threadIdx.x) * kPack; col < cols; col += static_cast<int64>(blockDim.x) * kPack) {
    Bf16* const gate_at = gate_up.row(row) + col;
    Bf16* const dact_at = dact.row(row) + col;
    float gate[kPack], up[kPack], d[kPack];
    load8(gate_at, cols - col, gate_up.aligned, gate);
    load8(gate_at + cols, cols - col, up_aligned, up);
    load8(dact_at, cols - col, dact.aligned, d);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const float g = gate[i], u = up[i], sigmoid = 1.0f / (1.0f + __expf(-g));
      const float act = g * sigmoid * u;
      dot += act * d[i];
      gate[i] = w * d[i] * u * sigmoid * (1.0f + g * (1.0f - sigmoid));
      up[i] = w * d[i] * (g * sigmoid);
      d[i] = w * act;
    }
    store8(gate_at, cols - col, gate_up.aligned, gate);
    store8(gate_at + cols, cols - col, up_aligned, up);
    store8(dact_at, cols - col, dact.aligned, d);
  }
  dot = sum_row(dot, shared);
  if (threadIdx.x == 0) dweights[t * dweights_stride + s] = dot;
}

__global__ void sigmoid_kernel(Rows<const float> x, Rows<float> y, int64 rows, int64 cols) {
  const int64 i = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows * cols) return;
  y.row(i / cols)[i % cols] = 1.0f / (1.0f + expf(-x.row(i / cols)[i % cols]));
}

template <typename T>
__global__ void sigmoid_backward_kernel(Rows<const float> y, Rows<const float> dy, Rows<T> dx, int64 rows, int64 cols) {
  const int64 i = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows * cols) return;
  const float v = y.row(i / cols)[i % cols];
  dx.row(i / cols)[i % cols] = from_float<T>(dy.row(i / cols)[i % cols] * v * (1.0f - v));
}

}  // namespace

void sort_by_expert_cuda(Stream& stream, const SortByExpert& op) {
  validate(op);
  CudaStream& cuda = cuda_stream(stream);
  const auto experts = static_cast<int>(op.offsets.cols - 1);
  const Assignments assignments{op.experts.as<const std::int32_t>(), op.experts.row_stride, op.experts.elements(),
                                static_cast<int>(std::max<int64>(op.experts.cols, 1))};
  const int64 pieces = ceil_div(assignments.count, kSortPiece);
  auto* const counts = op.workspace.as<std::int32_t>();
  auto* const offsets = op.offsets.as<std::int32_t>();
  const unsigned threads = power_of_2_from(experts, 32, 1024);
  if (pieces > 0) count_kernel<<<grid_size(pieces), 256, 0, cuda.native()>>>(assignments, experts, counts);
  offsets_kernel<<<1, threads, 0, cuda.native()>>>(counts, pieces, experts, offsets);
  if (pieces > 0)
    rank_kernel<<<grid_size(pieces), threads, 0, cuda.native()>>>(
        assignments, experts, counts, offsets, op.source.as<std::int32_t>(), op.source.row_stride,
        op.position.as<std::int32_t>(), op.position.row_stride);
  cuda.launched("sort_by_expert");
}

void combine_experts_cuda(Stream& stream, const CombineExperts& op) {
  validate(op);
  if (op.out.empty()) return;
  CudaStream& cuda = cuda_stream(stream);
  const Tiles tiles(op.out.rows, op.out.cols);
  const int k = op.position.absent() ? 1 : static_cast<int>(op.position.cols);
  with_float_type(op.rows.dtype, [&](auto in) {
    with_float_type(op.out.dtype, [&](auto out) {
      using In = decltype(in);
      using Out = decltype(out);
      combine_kernel<In, Out><<<tiles.grid, tiles.block, 0, cuda.native()>>>(
          rows_of<const In>(op.rows), positions_of(op.position, op.rows.rows),
          op.weights.absent() ? nullptr : op.weights.as<const float>(), op.weights.row_stride,
          op.addend.absent() ? Rows<const Out>{nullptr, 0, false} : rows_of<const Out>(op.addend), rows_of<Out>(op.out),
          tiles.rows, tiles.cols, tiles.across, k);
    });
  });
  cuda.launched("combine_experts");
}

void expert_swiglu_backward_cuda(Stream& stream, const ExpertSwigluBackward& op) {
  validate(op);
  require_bf16("expert_swiglu_backward", "gate_up", op.gate_up);
  if (op.weights.empty()) return;
  CudaStream& cuda = cuda_stream(stream);
  const int64 cols = op.dact.cols;
  const Rows<Bf16> gate_up = rows_of<Bf16>(op.gate_up);
  expert_swiglu_backward_kernel<<<grid_size(op.dact.rows), power_of_2_from(ceil_div(cols, kPack), 32, 256), 0,
                                  cuda.native()>>>(
      gate_up, gate_up.aligned && cols % kPack == 0, rows_of<Bf16>(op.dact), positions_of(op.position, op.dact.rows),
      op.weights.as<const float>(), op.weights.row_stride, op.dweights.as<float>(), op.dweights.row_stride, cols,
      static_cast<int>(op.weights.cols));
  cuda.launched("expert_swiglu_backward");
}

void sigmoid_cuda(Stream& stream, const Sigmoid& op) {
  validate(op);
  if (op.x.empty()) return;
  CudaStream& cuda = cuda_stream(stream);
  sigmoid_kernel<<<grid_size(ceil_div(op.x.elements(), 256)), 256, 0, cuda.native()>>>(
      rows_of<const float>(op.x), rows_of<float>(op.y), op.x.rows, op.x.cols);
  cuda.launched("sigmoid");
}

void sigmoid_backward_cuda(Stream& stream, const SigmoidBackward& op) {
  validate(op);
  if (op.y.empty()) return;
  CudaStream& cuda = cuda_stream(stream);
  with_float_type(op.dx.dtype, [&](auto type) {
    using T = decltype(type);
    sigmoid_backward_kernel<T><<<grid_size(ceil_div(op.y.elements(), 256)), 256, 0, cuda.native()>>>(
        rows_of<const float>(op.y), rows_of<const float>(op.dy), rows_of<T>(op.dx), op.y.rows, op.y.cols);
  });
  cuda.launched("sigmoid_backward");
}

}  // namespace megatoken
