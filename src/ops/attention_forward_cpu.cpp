// One task is a tile of queries of one head; it walks over the tiles of visible keys with the online softmax (Milakov
// and Gimelshein 2018; Rabe and Staats 2021). Scores are held transposed, [key][query]: queries are the vector lanes,
// so that maxima and sums need no work across lanes, keys are read in place, and only the queries are ever transposed,
// once. Exponentials are powers of 2: log2(e) is part of the scale.
#include <cmath>

#include "ops/cpu/attention_tiles.h"
#include "ops/cpu/tile_product.h"
#include "ops/op_table_cpu.h"

namespace megatoken {
namespace {

struct Scratch {
  explicit Scratch(int64 head_dim) : width(padded(head_dim)) {
    float* p = thread_scratch(kQueryTile * (head_dim + width + kKeyTile + 3) + kKeyTile * 2 * width);
    const auto take = [&p](int64 n) { return std::exchange(p, p + n); };
    queries = take(head_dim * kQueryTile);
    scores = take(kKeyTile * kQueryTile);
    keys = take(kKeyTile * width);
    values = take(kKeyTile * width);
    output = take(kQueryTile * width);
    maximum = take(kQueryTile);
    sum = take(kQueryTile);
    correction = take(kQueryTile);
  }
  int64 width;        // head_dim padded to whole vectors
  float* queries;     // [head_dim][kQueryTile], times scale log2(e)
  float* scores;      // [kKeyTile][kQueryTile]
  float* keys;        // [kKeyTile][width], unless they are float32 already
  float* values;      // [kKeyTile][width]
  float* output;      // [kQueryTile][width], not yet divided by the sum
  float* maximum;     // [kQueryTile], of the scores so far
  float* sum;         // [kQueryTile], of exp2(score - maximum)
  float* correction;  // [kQueryTile], exp2(old maximum - new maximum)
};

// -inf where a key lies beyond what its query sees: query i sees key k when k < first_visible + i.
void mask_scores(float* scores, int64 keys, int64 first_visible, int64 first_query) {
  alignas(kVectorBytes) float lane[kLanes];
  for (int64 i = 0; i < kLanes; ++i) lane[i] = static_cast<float>(i);
  for (int64 k = 0; k < keys; ++k) {
    for (int64 q = first_query; q < kQueryTile; q += kLanes) {
      const int64 hidden = k - first_visible + 1 - q;
      if (hidden <= 0) break;
      float* at = scores + k * kQueryTile + q;
      store(at, load(lane) < static_cast<float>(hidden) ? splat(-INFINITY) : load(at));
    }
  }
}

// Scores of queries from first_query on to exp2(score - maximum), with maximum, sum and correction brought up to date.
void softmax_step(const Scratch& s, int64 keys, int64 first_query) {
  for (int64 q = first_query; q < kQueryTile; q += kLanes) {
    float* column = s.scores + q;
    const Vec old = load(s.maximum + q);
    Vec largest = old;
    for (int64 k = 0; k < keys; ++k) largest = larger(largest, load(column + k * kQueryTile));
    const Vec shift = largest == -INFINITY ? Vec{} : largest;
    Vec sum{};
    for (int64 k = 0; k < keys; ++k) {
      const Vec p = exp2_small(load(column + k * kQueryTile) - shift);
      store(column + k * kQueryTile, p);
      sum += p;
    }
    const Vec correction = exp2_small(old - shift);
    store(s.maximum + q, largest);
    store(s.correction + q, correction);
    store(s.sum + q, load(s.sum + q) * correction + sum);
  }
}

// Adds keys [key, key + keys) to the results of queries from first_query (a multiple of kLanes) on.
template <typename T>
void add_keys(const AttentionForward& op, const Scratch& s, int64 kv_head, int64 first, int64 queries,
              int64 first_query, int64 key, int64 keys) {
  TileA<false> rows{};
  if constexpr (std::is_same_v<T, float>) {
    rows = {op.k.row<const float>(key) + kv_head * op.head_dim, op.k.row_stride};
  } else {
    load_tile<T>(op.k, key, keys, kv_head, op.head_dim, s.keys, s.width);
    rows = {s.keys, s.width};
  }
  load_tile<T>(op.v, key, keys, kv_head, op.head_dim, s.values, s.width);
  tile_product<false>(keys, kQueryTile - first_query, op.head_dim, rows, s.queries + first_query, kQueryTile,
                      s.scores + first_query, kQueryTile);
  const int64 first_visible = visible_keys(op, first) - key;
  if (op.mask == AttentionMask::causal && first_visible + first_query < keys)
    mask_scores(s.scores, keys, first_visible, first_query);
  softmax_step(s, keys, first_query);
  for (int64 i = first_query; i < queries; ++i) {
    if (s.correction[i] == 1.0f) continue;
    float* row = s.output + i * s.width;
    for (int64 j = 0; j < s.width; ++j) row[j] *= s.correction[i];
  }
  tile_product<true>(queries - first_query, s.width, keys, TileA<true>{s.scores + first_query, kQueryTile}, s.values,
                     s.width, s.output + first_query * s.width, s.width);
}

template <typename T>
void forward_tile(const AttentionForward& op, int64 head, int64 first, int64 queries) {
  const Scratch s(op.head_dim);
  const int64 kv_head = head / (op.heads / op.kv_heads);
  load_transposed<T>(op.q, first, queries, head, op.head_dim, op.scale * kLog2E, s.queries, kQueryTile);
  std::fill_n(s.output, kQueryTile * s.width, 0.0f);
  std::fill_n(s.maximum, kQueryTile, -INFINITY);
  std::fill_n(s.sum, kQueryTile, 0.0f);

  const int64 seen_by_all = visible_keys(op, first);
  const int64 seen_by_last = visible_keys(op, first + queries - 1);
  int64 key = 0;
  for (; key < seen_by_all; key += kKeyTile)
    add_keys<T>(op, s, kv_head, first, queries, 0, key, std::min(kKeyTile, seen_by_all - key));
  // The keys beyond, strip by strip: key seen_by_all + j is seen from query j + 1 on.
  for (key = seen_by_all; key < seen_by_last; key += kDiagonalStep) {
    const int64 first_query = (key - seen_by_all + 1) / kLanes * kLanes;
    add_keys<T>(op, s, kv_head, first, queries, first_query, key, std::min(kDiagonalStep, seen_by_last - key));
  }

  for (int64 i = 0; i < queries; ++i) {
    const bool blind = s.sum[i] == 0.0f;  // every score was -inf
    const float factor = blind ? 0.0f : 1.0f / s.sum[i];
    T* o = op.o.row<T>(first + i) + head * op.head_dim;
    for (int64 j = 0; j < op.head_dim; ++j) o[j] = from_float<T>(s.output[i * s.width + j] * factor);
    op.lse.row<float>(head)[first + i] = blind ? -INFINITY : (s.maximum[i] + std::log2(s.sum[i])) * kLn2;
  }
}

}  // namespace

void attention_forward_cpu(Stream& stream, const AttentionForward& op) {
  validate(op);
  const int64 tiles = ceil_div(op.q.rows, kQueryTile);
  with_float_type(op.q.dtype, [&](auto type) {
    // The longest tasks, the last queries of a causal block, come first. Heads of one KV head follow each other.
    parallel_blocks(stream, tiles * op.heads, [&](int64 task) {
      const int64 first = (tiles - 1 - task / op.heads) * kQueryTile;
      forward_tile<decltype(type)>(op, task % op.heads, first, std::min(kQueryTile, op.q.rows - first));
    });
  });
}

int64 attention_forward_workspace_cpu(const AttentionForward& /*op*/) { return 0; }

}  // namespace megatoken
