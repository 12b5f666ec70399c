// Random data, a plain reference for sampled rows, and comparisons, on the device. Not fast: right.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

namespace megatoken::probe {

inline constexpr int kHeadDim = 128;

// Throws std::runtime_error that names the call.
void cuda_check(cudaError_t status, const char* what);

// A [row, head, 128] view; strides in elements.
struct View {
  void* data = nullptr;
  int64_t row = 0;
  int64_t head = 0;
  bool f32 = false;
};

// bf16 normal values, a function of (seed, index) alone.
void fill_normal(void* bf16, int64_t count, uint64_t seed, float deviation, cudaStream_t stream);

struct Attention {
  View q, k, v, o, d_o;          // k, v have one head per `group` query heads
  const float* stats = nullptr;  // natural log-sum-exp: stats[head * stats_head + row * stats_row]
  int64_t stats_head = 0;
  int64_t stats_row = 1;
  int64_t heads = 1;  // query heads
  int64_t group = 1;
  int64_t queries = 0;
  int64_t keys = 0;
  bool causal = false;
  int64_t diagonal = 0;  // causal: row i sees keys up to i + diagonal (keys - queries: bottom right; 0: top left)
  int64_t window = 0;    // causal: and no more than this many of them; 0: no limit
  float scale = 0;
};

// Results for sampled query rows, [row][head][128] and [row][head].
struct RowReference {
  std::vector<float> o, lse, dq;
};
// From q, k, v, d_o alone, accumulated in double. Needs scratch of 2 * rows * heads * keys floats.
RowReference reference_rows(const Attention& a, const std::vector<int64_t>& rows, float* scratch, cudaStream_t stream);

// Results for sampled keys, [key][key head][128]. Uses a.stats and rowsum(a.o * a.d_o) as the backward pass does.
struct KeyReference {
  std::vector<float> dk, dv;
};
// Needs scratch of heads * queries floats.
KeyReference reference_keys(const Attention& a, const std::vector<int64_t>& keys, float* scratch, cudaStream_t stream);

// Merges block results as the trainer does, in fp32: o = o * exp(lse - m) + ..., lse = log-sum-exp of both. Rows packed
// [row][128] bf16, one head; o and lse receive the result.
void merge(void* o, float* lse, const void* other_o, const float* other_lse, int64_t rows, cudaStream_t stream);

// Sampled rows of a view as floats, [row][head][128].
std::vector<float> gather(const View& view, int64_t heads, const std::vector<int64_t>& rows, cudaStream_t stream);

// Elements of rows [0, rows) and heads [0, heads) that are not finite (the poison is not), zero, or still the 0xFF
// poison.
struct Census {
  int64_t not_finite = 0;
  int64_t zero = 0;
  int64_t poison = 0;
};
Census census(const View& view, int64_t rows, int64_t heads, cudaStream_t stream);

// Elements that differ, the largest |difference| and the largest |value| of a.
struct Difference {
  int64_t unequal = 0;
  double largest = 0;
  double largest_value = 0;
};
Difference difference(const void* a, const void* b, int64_t count, bool f32, cudaStream_t stream);

}  // namespace megatoken::probe
