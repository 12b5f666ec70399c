// A warp owns one row (a query of a head, or a key of a KV head) and walks over the rows it meets, 32 at a time: each lane
// takes the products with one of them, then the lanes share out the columns and add up the 32 contributions in order.
#include <cmath>

#include "ops/cuda/attention_plain.h"
#include "ops/cuda/launch.cuh"

namespace megatoken::cuda {
namespace {

constexpr int kWarps = 4;

struct Shape {
  int64 queries, keys, heads, group, head_dim;
  float scale;
  bool causal;
  // Keys before this one are seen by the query.
  __device__ int64 visible(int64 query) const { return causal ? query + 1 + keys - queries : keys; }
};

struct Inputs {
  Rows<const Bf16> q, k, v, o, dout;
  Rows<const float> lse;
};

template <typename Op>
Shape shape_of(const Op& op) {
  check(op.head_dim <= kMostPlainHeadDim, "attention: head_dim {} on CUDA, at most {}", op.head_dim, kMostPlainHeadDim);
  return {op.q.rows, op.k.rows, op.heads, op.heads / op.kv_heads, op.head_dim, op.scale, op.mask == AttentionMask::causal};
}

__device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
__device__ int64 task() { return static_cast<int64>(blockIdx.x) * kWarps + threadIdx.x / 32; }

// `count` rows of head_dim float32 in shared memory that belong to this warp.
__device__ float* warp_memory(int64 head_dim, int count) {
  extern __shared__ float memory[];
  return memory + static_cast<int64>(threadIdx.x) / 32 * head_dim * count;
}

__device__ void load_row(float* to, const Bf16* from, int64 n) {
  for (int64 c = lane(); c < n; c += 32) to[c] = to_float(from[c]);
}

__device__ float dot(const float* a, const Bf16* b, int64 n) {
  float sum = 0;
  for (int64 c = 0; c < n; ++c) sum += a[c] * to_float(b[c]);
  return sum;
}

__device__ float max_lanes(float x) {
  for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, offset));
  return x;
}

__global__ void forward_kernel(Shape s, Inputs in, Rows<Bf16> o, Rows<float> lse) {
  if (task() >= s.heads * s.queries) return;  // whole warps
  const int64 head = task() / s.queries, query = task() % s.queries;
  const int64 n = s.head_dim, kv = head / s.group * n;
  float* q = warp_memory(n, 2);
  float* sum = q + n;
  load_row(q, in.q.row(query) + head * n, n);
  for (int64 c = lane(); c < n; c += 32) sum[c] = 0;
  __syncwarp();
  float largest = -INFINITY, total = 0;
  const int64 end = s.visible(query);
  for (int64 first = 0; first < end; first += 32) {
    const int64 key = first + lane();
    const float score = key < end ? s.scale * dot(q, in.k.row(key) + kv, n) : -INFINITY;
    const float previous = largest;
    largest = fmaxf(largest, max_lanes(score));
    const float shift = largest == -INFINITY ? 0.0f : largest;
    const float p = expf(score - shift);
    const float correction = expf(previous - shift);
    total = total * correction + sum_lanes(p);
    for (int64 c = lane(); c < n; c += 32) sum[c] *= correction;
    const int count = static_cast<int>(min(static_cast<int64>(32), end - first));
    for (int j = 0; j < count; ++j) {
      const float share = __shfl_sync(0xFFFFFFFFu, p, j);
      const Bf16* v = in.v.row(first + j) + kv;
      for (int64 c = lane(); c < n; c += 32) sum[c] += share * to_float(v[c]);
    }
  }
  const bool blind = total == 0.0f;  // every score was -inf
  for (int64 c = lane(); c < n; c += 32) o.row(query)[head * n + c] = from_float<Bf16>(blind ? 0.0f : sum[c] / total);
  if (lane() == 0) lse.row(head)[query] = blind ? -INFINITY : largest + logf(total);
}

// delta[head][query] = rowsum(dout o).
__global__ void delta_kernel(Shape s, Inputs in, float* delta) {
  if (task() >= s.heads * s.queries) return;
  const int64 head = task() / s.queries, query = task() % s.queries, n = s.head_dim;
  const Bf16* o = in.o.row(query) + head * n;
  const Bf16* dout = in.dout.row(query) + head * n;
  float sum = 0;
  for (int64 c = lane(); c < n; c += 32) sum += to_float(o[c]) * to_float(dout[c]);
  sum = sum_lanes(sum);
  if (lane() == 0) delta[head * s.queries + query] = sum;
}

// A query that saw nothing (lse -inf) has no gradient.
__device__ float probability(float score, float lse) { return lse == -INFINITY ? 0.0f : expf(score - lse); }

__global__ void query_gradient_kernel(Shape s, Inputs in, const float* delta, Rows<float> dq) {
  if (task() >= s.heads * s.queries) return;
  const int64 head = task() / s.queries, query = task() % s.queries;
  const int64 n = s.head_dim, kv = head / s.group * n;
  float* q = warp_memory(n, 3);
  float* dout = q + n;
  float* sum = dout + n;
  load_row(q, in.q.row(query) + head * n, n);
  load_row(dout, in.dout.row(query) + head * n, n);
  for (int64 c = lane(); c < n; c += 32) sum[c] = 0;
  __syncwarp();
  const float lse = in.lse.row(head)[query], own_delta = delta[head * s.queries + query];
  const int64 end = s.visible(query);
  for (int64 first = 0; first < end; first += 32) {
    const int64 key = first + lane();
    float ds = 0;
    if (key < end) {
      const float p = probability(s.scale * dot(q, in.k.row(key) + kv, n), lse);
      ds = s.scale * p * (dot(dout, in.v.row(key) + kv, n) - own_delta);
    }
    const int count = static_cast<int>(min(static_cast<int64>(32), end - first));
    for (int j = 0; j < count; ++j) {
      const float share = __shfl_sync(0xFFFFFFFFu, ds, j);
      const Bf16* k = in.k.row(first + j) + kv;
      for (int64 c = lane(); c < n; c += 32) sum[c] += share * to_float(k[c]);
    }
  }
  for (int64 c = lane(); c < n; c += 32) dq.row(query)[head * n + c] += sum[c];
}

__global__ void key_gradient_kernel(Shape s, Inputs in, const float* delta, Rows<float> dk, Rows<float> dv) {
  const int64 kv_heads = s.heads / s.group;
  if (task() >= kv_heads * s.keys) return;
  const int64 kv_head = task() / s.keys, key = task() % s.keys;
  const int64 n = s.head_dim, kv = kv_head * n;
  float* k = warp_memory(n, 4);
  float* v = k + n;
  float* key_sum = v + n;
  float* value_sum = key_sum + n;
  load_row(k, in.k.row(key) + kv, n);
  load_row(v, in.v.row(key) + kv, n);
  for (int64 c = lane(); c < n; c += 32) key_sum[c] = value_sum[c] = 0;
  __syncwarp();
  const int64 first_query = s.causal ? max(int64{0}, key - (s.keys - s.queries)) : 0;
  for (int64 head = kv_head * s.group; head < (kv_head + 1) * s.group; ++head) {
    for (int64 first = first_query; first < s.queries; first += 32) {
      const int64 query = first + lane();
      float p = 0, ds = 0;
      if (query < s.queries) {
        p = probability(s.scale * dot(k, in.q.row(query) + head * n, n), in.lse.row(head)[query]);
        ds = s.scale * p * (dot(v, in.dout.row(query) + head * n, n) - delta[head * s.queries + query]);
      }
      const int count = static_cast<int>(min(static_cast<int64>(32), s.queries - first));
      for (int j = 0; j < count; ++j) {
        const float p_share = __shfl_sync(0xFFFFFFFFu, p, j);
        const float ds_share = __shfl_sync(0xFFFFFFFFu, ds, j);
        const Bf16* q = in.q.row(first + j) + head * n;
        const Bf16* dout = in.dout.row(first + j) + head * n;
        for (int64 c = lane(); c < n; c += 32) {
          key_sum[c] += ds_share * to_float(q[c]);
          value_sum[c] += p_share * to_float(dout[c]);
        }
      }
    }
  }
  for (int64 c = lane(); c < n; c += 32) {
    dk.row(key)[kv + c] += key_sum[c];
    dv.row(key)[kv + c] += value_sum[c];
  }
}

std::size_t shared_bytes(int64 head_dim, int rows) {
  return static_cast<std::size_t>(kWarps * rows * head_dim) * sizeof(float);
}

unsigned blocks_for(int64 tasks) { return grid_size(ceil_div(tasks, kWarps)); }

}  // namespace

void attention_forward_plain(CudaStream& stream, const AttentionForward& op) {
  const Shape s = shape_of(op);
  const Inputs in{rows_of<const Bf16>(op.q), rows_of<const Bf16>(op.k), rows_of<const Bf16>(op.v), {}, {}, {}};
  forward_kernel<<<blocks_for(s.heads * s.queries), 32 * kWarps, shared_bytes(s.head_dim, 2), stream.native()>>>(
      s, in, rows_of<Bf16>(op.o), rows_of<float>(op.lse));
}

void attention_backward_plain(CudaStream& stream, const AttentionBackward& op, float* delta) {
  const Shape s = shape_of(op);
  const Inputs in{rows_of<const Bf16>(op.q), rows_of<const Bf16>(op.k),    rows_of<const Bf16>(op.v),
                  rows_of<const Bf16>(op.o), rows_of<const Bf16>(op.dout), rows_of<const float>(op.lse)};
  const unsigned queries = blocks_for(s.heads * s.queries), keys = blocks_for(op.kv_heads * s.keys);
  delta_kernel<<<queries, 32 * kWarps, 0, stream.native()>>>(s, in, delta);
  query_gradient_kernel<<<queries, 32 * kWarps, shared_bytes(s.head_dim, 3), stream.native()>>>(s, in, delta,
                                                                                                rows_of<float>(op.dq));
  key_gradient_kernel<<<keys, 32 * kWarps, shared_bytes(s.head_dim, 4), stream.native()>>>(
      s, in, delta, rows_of<float>(op.dk), rows_of<float>(op.dv));
}

}  // namespace megatoken::cuda
