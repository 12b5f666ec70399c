#include <algorithm>
#include <cstdint>

#include "device/cuda/sum_kernel.h"
#include "device/device.h"

namespace megatoken {
namespace {

constexpr int kThreads = 256;
constexpr int64 kMaxBlocks = 1056;  // 8 a multiprocessor of the largest GPU

struct Terms {
  const float* data[Stream::kMaxTerms];
};

__device__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ float4 add(float4 a, float4 b) { return {add(a.x, b.x), add(a.y, b.y), add(a.z, b.z), add(a.w, b.w)}; }

// Element i of every term is read before element i of out is written, by the same thread: out may be a term.
template <typename Vector>
__global__ void sum_kernel(const __grid_constant__ Terms terms, int num_terms, Vector* out, int64 count) {
  const int64 stride = int64{gridDim.x} * kThreads;
  for (int64 i = int64{blockIdx.x} * kThreads + threadIdx.x; i < count; i += stride) {
    Vector sum = reinterpret_cast<const Vector*>(terms.data[0])[i];
#pragma unroll 8
    for (int t = 1; t < num_terms; ++t) sum = add(sum, reinterpret_cast<const Vector*>(terms.data[t])[i]);
    out[i] = sum;
  }
}

template <typename Vector>
void launch(cudaStream_t stream, const Terms& terms, int num_terms, float* out, int64 count) {
  const auto blocks = static_cast<unsigned>(std::min(kMaxBlocks, (count + kThreads - 1) / kThreads));
  sum_kernel<<<blocks, kThreads, 0, stream>>>(terms, num_terms, reinterpret_cast<Vector*>(out), count);
}

bool aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % sizeof(float4) == 0; }

}  // namespace

void launch_sum(cudaStream_t stream, std::span<const float* const> terms, float* out, int64 count) {
  Terms all{};
  std::copy(terms.begin(), terms.end(), all.data);
  const int num_terms = static_cast<int>(terms.size());
  if (count % 4 == 0 && aligned(out) && std::all_of(terms.begin(), terms.end(), aligned))
    launch<float4>(stream, all, num_terms, out, count / 4);
  else
    launch<float>(stream, all, num_terms, out, count);
}

}  // namespace megatoken
