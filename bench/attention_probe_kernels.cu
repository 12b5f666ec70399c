#include <cuda_bf16.h>

#include <stdexcept>
#include <string>

#include "attention_probe_kernels.h"

namespace megatoken::probe {

void cuda_check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

void launched(const char* what) { cuda_check(cudaGetLastError(), what); }

// Device memory for the duration of one call.
template <class T>
class Temporary {
 public:
  explicit Temporary(int64_t count) { cuda_check(cudaMalloc(&data_, count * sizeof(T)), "cudaMalloc"); }
  ~Temporary() { cudaFree(data_); }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  T* get() const { return data_; }
  std::vector<T> download(int64_t count, cudaStream_t stream) const {
    std::vector<T> host(count);
    cuda_check(cudaMemcpyAsync(host.data(), data_, count * sizeof(T), cudaMemcpyDeviceToHost, stream), "download");
    cuda_check(cudaStreamSynchronize(stream), "synchronize");
    return host;
  }
  void upload(const std::vector<T>& host, cudaStream_t stream) const {
    cuda_check(cudaMemcpyAsync(data_, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice, stream), "upload");
    cuda_check(cudaStreamSynchronize(stream), "synchronize");
  }

 private:
  T* data_ = nullptr;
};

__device__ float load(const View& v, int64_t row, int64_t head, int d) {
  const int64_t i = row * v.row + head * v.head + d;
  return v.f32 ? static_cast<const float*>(v.data)[i] : __bfloat162float(static_cast<const __nv_bfloat16*>(v.data)[i]);
}

__device__ uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// Box-Muller: two values from one 64-bit hash.
__global__ void fill_normal_kernel(__nv_bfloat162* out, int64_t pairs, uint64_t seed, float deviation) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < pairs; i += step) {
    const uint64_t h = mix(mix(seed) + static_cast<uint64_t>(i));
    const float u = (static_cast<float>(h >> 40) + 1.0F) * (1.0F / 16777216.0F);
    const float w = static_cast<float>((h >> 8) & 0xFFFFFF) * (1.0F / 16777216.0F);
    const float r = deviation * sqrtf(-2.0F * __logf(u));
    float s;
    float c;
    __sincosf(6.2831853F * w, &s, &c);
    out[i] = __floats2bfloat162_rn(r * c, r * s);
  }
}

__device__ float warp_sum(float x) {
  for (int m = 16; m; m >>= 1) x += __shfl_xor_sync(0xffffffffu, x, m);
  return x;
}

// One block per (sampled row, head). scratch: [block][2][keys] scores and dO.V.
__global__ void reference_rows_kernel(Attention a, const int64_t* rows, float* scratch, float* out_o, float* out_lse,
                                      float* out_dq) {
  const int64_t row = rows[blockIdx.x];
  const int64_t head = blockIdx.y;
  const int64_t key_head = head / a.group;
  const int64_t visible = a.causal ? min(a.keys, row + a.diagonal + 1) : a.keys;
  const int64_t first = a.causal && a.window ? max(static_cast<int64_t>(0), row + a.diagonal + 1 - a.window) : 0;
  const int64_t slot = static_cast<int64_t>(blockIdx.x) * gridDim.y + head;
  float* score = scratch + slot * 2 * a.keys;
  float* d_p = score + a.keys;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  float q[4];
  float g[4];
  for (int i = 0; i < 4; ++i) {
    q[i] = load(a.q, row, head, lane + 32 * i);
    g[i] = load(a.d_o, row, head, lane + 32 * i);
  }
#pragma unroll 4
  for (int64_t j = first + warp; j < visible; j += kWarps) {
    float s = 0;
    float t = 0;
    for (int i = 0; i < 4; ++i) {
      s += q[i] * load(a.k, j, key_head, lane + 32 * i);
      t += g[i] * load(a.v, j, key_head, lane + 32 * i);
    }
    s = warp_sum(s);
    t = warp_sum(t);
    if (lane == 0) {
      score[j] = s * a.scale;
      d_p[j] = t;
    }
  }
  __syncthreads();
  __shared__ double red[kThreads];
  __shared__ double red2[kThreads];
  double m = -1e30;
  for (int64_t j = first + threadIdx.x; j < visible; j += kThreads) m = fmax(m, static_cast<double>(score[j]));
  red[threadIdx.x] = m;
  __syncthreads();
  for (int k = kThreads / 2; k; k >>= 1) {
    if (threadIdx.x < k) red[threadIdx.x] = fmax(red[threadIdx.x], red[threadIdx.x + k]);
    __syncthreads();
  }
  m = red[0];
  __syncthreads();
  double sum = 0;
  double weighted = 0;
  for (int64_t j = first + threadIdx.x; j < visible; j += kThreads) {
    const double p = exp(static_cast<double>(score[j]) - m);
    sum += p;
    weighted += p * d_p[j];
  }
  red[threadIdx.x] = sum;
  red2[threadIdx.x] = weighted;
  __syncthreads();
  for (int k = kThreads / 2; k; k >>= 1) {
    if (threadIdx.x < k) {
      red[threadIdx.x] += red[threadIdx.x + k];
      red2[threadIdx.x] += red2[threadIdx.x + k];
    }
    __syncthreads();
  }
  const double lse = m + log(red[0]);
  const double delta = red2[0] / red[0];  // rowsum(dO * O)
  __syncthreads();
  const int d = threadIdx.x % kHeadDim;
  const int half = threadIdx.x / kHeadDim;
  double o = 0;
  double dq = 0;
#pragma unroll 8
  for (int64_t j = first + half; j < visible; j += 2) {
    const float p = expf(static_cast<float>(score[j] - lse));
    o += p * load(a.v, j, key_head, d);
    dq += p * (d_p[j] - delta) * load(a.k, j, key_head, d);
  }
  red[threadIdx.x] = o;
  red2[threadIdx.x] = dq;
  __syncthreads();
  if (half == 0) {
    out_o[slot * kHeadDim + d] = static_cast<float>(red[d] + red[d + kHeadDim]);
    out_dq[slot * kHeadDim + d] = static_cast<float>(a.scale * (red2[d] + red2[d + kHeadDim]));
    if (d == 0) out_lse[slot] = static_cast<float>(lse);
  }
}

// delta[head * queries + row] = rowsum(o * d_o); one warp per (row, head).
__global__ void delta_kernel(Attention a, float* delta) {
  const int lane = threadIdx.x % 32;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t w = blockIdx.x * static_cast<int64_t>(kWarps) + threadIdx.x / 32; w < a.queries * a.heads; w += step) {
    const int64_t row = w / a.heads;
    const int64_t head = w % a.heads;
    float s = 0;
    for (int i = 0; i < 4; ++i) s += load(a.o, row, head, lane + 32 * i) * load(a.d_o, row, head, lane + 32 * i);
    s = warp_sum(s);
    if (lane == 0) delta[head * a.queries + row] = s;
  }
}

// One block per (sampled key, slice of rows): partial sums go to out by atomic addition in double.
__global__ void reference_keys_kernel(Attention a, const int64_t* keys, const float* delta, double* out_dk,
                                      double* out_dv) {
  const int64_t key = keys[blockIdx.x];
  const int64_t key_head = blockIdx.y;
  const int64_t slot = static_cast<int64_t>(blockIdx.x) * gridDim.y + key_head;
  const int lane = threadIdx.x % 32;
  float k[4];
  float v[4];
  double dk[4] = {0, 0, 0, 0};
  double dv[4] = {0, 0, 0, 0};
  for (int i = 0; i < 4; ++i) {
    k[i] = load(a.k, key, key_head, lane + 32 * i);
    v[i] = load(a.v, key, key_head, lane + 32 * i);
  }
  const int64_t first = a.causal ? max(static_cast<int64_t>(0), key - a.diagonal) : 0;
  const int64_t last = a.causal && a.window ? min(a.queries, key - a.diagonal + a.window) : a.queries;
  const int64_t step = static_cast<int64_t>(gridDim.z) * kWarps;
  for (int64_t row = first + blockIdx.z * static_cast<int64_t>(kWarps) + threadIdx.x / 32; row < last; row += step) {
    for (int64_t h = key_head * a.group; h < (key_head + 1) * a.group; ++h) {
      float q[4];
      float g[4];
      float s = 0;
      float t = 0;
      for (int i = 0; i < 4; ++i) {
        q[i] = load(a.q, row, h, lane + 32 * i);
        g[i] = load(a.d_o, row, h, lane + 32 * i);
        s += q[i] * k[i];
        t += g[i] * v[i];
      }
      s = warp_sum(s);
      t = warp_sum(t);
      const float p = expf(s * a.scale - a.stats[h * a.stats_head + row * a.stats_row]);
      const float ds = p * (t - delta[h * a.queries + row]) * a.scale;
      for (int i = 0; i < 4; ++i) {
        dk[i] += static_cast<double>(ds) * q[i];
        dv[i] += static_cast<double>(p) * g[i];
      }
    }
  }
  for (int i = 0; i < 4; ++i) {
    atomicAdd(&out_dk[slot * kHeadDim + lane + 32 * i], dk[i]);
    atomicAdd(&out_dv[slot * kHeadDim + lane + 32 * i], dv[i]);
  }
}

__global__ void merge_kernel(__nv_bfloat16* o, float* lse, const __nv_bfloat16* other_o, const float* other_lse) {
  const int64_t row = blockIdx.x;
  const int64_t i = row * kHeadDim + threadIdx.x;
  const float a = lse[row];
  const float b = other_lse[row];
  const float m = fmaxf(a, b);
  const float total = m + logf(expf(a - m) + expf(b - m));
  const float x = __bfloat162float(o[i]) * expf(a - total) + __bfloat162float(other_o[i]) * expf(b - total);
  __syncthreads();  // every thread has read lse
  o[i] = __float2bfloat16_rn(x);
  if (threadIdx.x == 0) lse[row] = total;
}

__global__ void gather_kernel(View view, const int64_t* rows, float* out) {
  const int64_t slot = static_cast<int64_t>(blockIdx.x) * gridDim.y + blockIdx.y;
  out[slot * kHeadDim + threadIdx.x] = load(view, rows[blockIdx.x], blockIdx.y, threadIdx.x);
}

__global__ void census_kernel(View view, int64_t rows, int64_t heads, unsigned long long* out) {
  const int64_t count = rows * heads * kHeadDim;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  unsigned long long bad = 0;
  unsigned long long zero = 0;
  unsigned long long poison = 0;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < count; i += step) {
    const int64_t row = i / (heads * kHeadDim);
    const int64_t head = i / kHeadDim % heads;
    const int64_t at = row * view.row + head * view.head + i % kHeadDim;
    float x;
    if (view.f32) {
      x = static_cast<const float*>(view.data)[at];
      poison += static_cast<const uint32_t*>(view.data)[at] == 0xFFFFFFFFu;
    } else {
      x = __bfloat162float(static_cast<const __nv_bfloat16*>(view.data)[at]);
      poison += static_cast<const uint16_t*>(view.data)[at] == 0xFFFFu;
    }
    bad += !isfinite(x);
    zero += x == 0.0F;
  }
  if (bad) atomicAdd(&out[0], bad);
  if (zero) atomicAdd(&out[1], zero);
  if (poison) atomicAdd(&out[2], poison);
}

__device__ void atomic_max(unsigned int* at, float x) { atomicMax(at, __float_as_uint(x)); }  // x >= 0

template <class T>
__global__ void difference_kernel(const T* a, const T* b, int64_t count, unsigned long long* unequal,
                                  unsigned int* largest) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  unsigned long long n = 0;
  float diff = 0;
  float value = 0;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < count; i += step) {
    const float x = static_cast<float>(a[i]);
    const float y = static_cast<float>(b[i]);
    n += !(x == y);
    diff = fmaxf(diff, fabsf(x - y));
    value = fmaxf(value, fabsf(x));
  }
  if (n) atomicAdd(unequal, n);
  atomic_max(&largest[0], diff);
  atomic_max(&largest[1], value);
}

constexpr int kGrid = 132 * 8;

}  // namespace

void fill_normal(void* bf16, int64_t count, uint64_t seed, float deviation, cudaStream_t stream) {
  fill_normal_kernel<<<kGrid, kThreads, 0, stream>>>(static_cast<__nv_bfloat162*>(bf16), count / 2, seed, deviation);
  launched("fill_normal");
}

RowReference reference_rows(const Attention& a, const std::vector<int64_t>& rows, float* scratch, cudaStream_t stream) {
  const int64_t n = static_cast<int64_t>(rows.size());
  const int64_t slots = n * a.heads;
  Temporary<int64_t> index(n);
  index.upload(rows, stream);
  Temporary<float> o(slots * kHeadDim);
  Temporary<float> dq(slots * kHeadDim);
  Temporary<float> lse(slots);
  const dim3 grid(static_cast<unsigned>(n), static_cast<unsigned>(a.heads));
  reference_rows_kernel<<<grid, kThreads, 0, stream>>>(a, index.get(), scratch, o.get(), lse.get(), dq.get());
  launched("reference_rows");
  return {o.download(slots * kHeadDim, stream), lse.download(slots, stream), dq.download(slots * kHeadDim, stream)};
}

KeyReference reference_keys(const Attention& a, const std::vector<int64_t>& keys, float* scratch, cudaStream_t stream) {
  const int64_t n = static_cast<int64_t>(keys.size());
  const int64_t key_heads = a.heads / a.group;
  const int64_t count = n * key_heads * kHeadDim;
  Temporary<int64_t> index(n);
  index.upload(keys, stream);
  Temporary<double> dk(count);
  Temporary<double> dv(count);
  cuda_check(cudaMemsetAsync(dk.get(), 0, count * sizeof(double), stream), "memset");
  cuda_check(cudaMemsetAsync(dv.get(), 0, count * sizeof(double), stream), "memset");
  delta_kernel<<<kGrid, kThreads, 0, stream>>>(a, scratch);
  launched("delta");
  const dim3 grid(static_cast<unsigned>(n), static_cast<unsigned>(key_heads), 32);
  reference_keys_kernel<<<grid, kThreads, 0, stream>>>(a, index.get(), scratch, dk.get(), dv.get());
  launched("reference_keys");
  const std::vector<double> k = dk.download(count, stream);
  const std::vector<double> v = dv.download(count, stream);
  return {{k.begin(), k.end()}, {v.begin(), v.end()}};
}

void merge(void* o, float* lse, const void* other_o, const float* other_lse, int64_t rows, cudaStream_t stream) {
  merge_kernel<<<static_cast<unsigned>(rows), kHeadDim, 0, stream>>>(
      static_cast<__nv_bfloat16*>(o), lse, static_cast<const __nv_bfloat16*>(other_o), other_lse);
  launched("merge");
}

std::vector<float> gather(const View& view, int64_t heads, const std::vector<int64_t>& rows, cudaStream_t stream) {
  const int64_t n = static_cast<int64_t>(rows.size());
  Temporary<int64_t> index(n);
  index.upload(rows, stream);
  Temporary<float> out(n * heads * kHeadDim);
  const dim3 grid(static_cast<unsigned>(n), static_cast<unsigned>(heads));
  gather_kernel<<<grid, kHeadDim, 0, stream>>>(view, index.get(), out.get());
  launched("gather");
  return out.download(n * heads * kHeadDim, stream);
}

Census census(const View& view, int64_t rows, int64_t heads, cudaStream_t stream) {
  Temporary<unsigned long long> out(3);
  cuda_check(cudaMemsetAsync(out.get(), 0, 24, stream), "memset");
  census_kernel<<<kGrid, kThreads, 0, stream>>>(view, rows, heads, out.get());
  launched("census");
  const auto host = out.download(3, stream);
  return {static_cast<int64_t>(host[0]), static_cast<int64_t>(host[1]), static_cast<int64_t>(host[2])};
}

Difference difference(const void* a, const void* b, int64_t count, bool f32, cudaStream_t stream) {
  Temporary<unsigned long long> unequal(1);
  Temporary<float> largest(2);
  cuda_check(cudaMemsetAsync(unequal.get(), 0, 8, stream), "memset");
  cuda_check(cudaMemsetAsync(largest.get(), 0, 8, stream), "memset");
  auto* top = reinterpret_cast<unsigned int*>(largest.get());
  if (f32) {
    difference_kernel<<<kGrid, kThreads, 0, stream>>>(static_cast<const float*>(a), static_cast<const float*>(b), count,
                                                      unequal.get(), top);
  } else {
    difference_kernel<<<kGrid, kThreads, 0, stream>>>(static_cast<const __nv_bfloat16*>(a),
                                                      static_cast<const __nv_bfloat16*>(b), count, unequal.get(), top);
  }
  launched("difference");
  const auto n = unequal.download(1, stream);
  const auto t = largest.download(2, stream);
  return {static_cast<int64_t>(n[0]), t[0], t[1]};
}

}  // namespace megatoken::probe
