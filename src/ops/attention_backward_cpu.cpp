// One task is a tile of keys of one KV head; it walks over the tiles of queries that see them, of every query head of
// the group, and recomputes p = exp(scale q k - lse) from the merged lse. With delta = rowsum(dout o):
//   dv += p^T dout;  ds = scale p (dout v^T - delta);  dk += ds^T q;  dq += ds k.
// dk and dv belong to the task. A tile of dq gets its parts in the order of the key tiles: a counter per tile says
// whose turn it is, and tasks are handed out in that order, so the one that is waited for is always running.
#include <atomic>
#include <cmath>
#include <memory>

#include "ops/cpu/attention_tiles.h"
#include "ops/cpu/tile_product.h"
#include "ops/op_table_cpu.h"

namespace megatoken {
namespace {

class Turns {
 public:
  explicit Turns(int64 count) : done_(std::make_unique<std::atomic<std::int32_t>[]>(static_cast<std::size_t>(count))) {}
  void wait(int64 place, int64 turn) {
    std::atomic<std::int32_t>& done = done_[static_cast<std::size_t>(place)];
    for (auto seen = done.load(std::memory_order_acquire); seen != turn; seen = done.load(std::memory_order_acquire))
      done.wait(seen, std::memory_order_acquire);
  }
  void pass(int64 place) {
    std::atomic<std::int32_t>& done = done_[static_cast<std::size_t>(place)];
    done.fetch_add(1, std::memory_order_release);
    done.notify_all();
  }

 private:
  std::unique_ptr<std::atomic<std::int32_t>[]> done_;  // parts added so far
};

struct Scratch {
  explicit Scratch(int64 head_dim) : width(padded(head_dim)) {
    float* p =
        thread_scratch(2 * kQueryTile * kKeyTile + kQueryTile * 3 * width + kKeyTile * (3 * width + 2 * head_dim));
    const auto take = [&p](int64 n) { return std::exchange(p, p + n); };
    keys_transposed = take(head_dim * kKeyTile);
    values_transposed = take(head_dim * kKeyTile);
    keys = take(kKeyTile * width);
    dk = take(kKeyTile * width);
    dv = take(kKeyTile * width);
    queries = take(kQueryTile * width);
    dout = take(kQueryTile * width);
    dq = take(kQueryTile * width);
    p_tile = take(kQueryTile * kKeyTile);
    ds_tile = take(kQueryTile * kKeyTile);
  }
  int64 width;                 // head_dim padded to whole vectors
  float* keys_transposed;      // [head_dim][kKeyTile], times scale log2(e)
  float* values_transposed;    // [head_dim][kKeyTile]
  float *keys, *dk, *dv;       // [kKeyTile][width]
  float *queries, *dout, *dq;  // [kQueryTile][width]
  float *p_tile, *ds_tile;     // [kQueryTile][kKeyTile]
};

// One row of p_tile: scores in, p out; of ds_tile: dout v^T in, ds out. Keys from `visible` on count for nothing.
void softmax_gradient(float* p, float* ds, float lse, float delta, float scale, int64 visible, int64 keys) {
  const float shift = lse == -INFINITY ? INFINITY : lse * kLog2E;  // a query that saw nothing has no gradient
  for (int64 k = 0; k < visible; k += kLanes) {
    const Vec probability = exp2_small(load(p + k) - shift);
    store(p + k, probability);
    store(ds + k, probability * (load(ds + k) - delta) * scale);
  }
  for (int64 k = visible; k < keys; ++k) p[k] = ds[k] = 0.0f;
}

void add_rows(const View& sum, int64 first, int64 rows, int64 head, int64 head_dim, const float* part, int64 stride) {
  for (int64 i = 0; i < rows; ++i) {
    float* to = sum.row<float>(first + i) + head * head_dim;
    for (int64 j = 0; j < head_dim; ++j) to[j] += part[i * stride + j];
  }
}

// What rows [row, row + rows) of the tile of queries at `first` add to dk and dv; dq's part is left in s.dq. None of
// them sees more than `keys` keys of the tile at `key`.
void query_rows(const AttentionBackward& op, const Scratch& s, const float* delta, int64 head, int64 first, int64 row,
                int64 rows, int64 key, int64 keys, TilePrefetch& prefetch) {
  const float* queries = s.queries + row * s.width;
  const float* dout = s.dout + row * s.width;
  float* p = s.p_tile + row * kKeyTile;
  float* ds = s.ds_tile + row * kKeyTile;
  const TileA<false> q_rows{queries, s.width};
  const TileA<false> dout_rows{dout, s.width};
  tile_product<false>(rows, padded(keys), op.head_dim, q_rows, s.keys_transposed, kKeyTile, p, kKeyTile, prefetch);
  tile_product<false>(rows, padded(keys), op.head_dim, dout_rows, s.values_transposed, kKeyTile, ds, kKeyTile,
                      prefetch);
  const float* lse = op.lse.row<const float>(head) + first + row;
  for (int64 i = 0; i < rows; ++i) {
    const int64 visible = std::clamp<int64>(visible_keys(op, first + row + i) - key, 0, keys);
    softmax_gradient(p + i * kKeyTile, ds + i * kKeyTile, lse[i], delta[row + i], op.scale, visible, keys);
  }
  tile_product<true>(keys, s.width, rows, TileA<true>{p, kKeyTile}, dout, s.width, s.dv, s.width, prefetch);
  tile_product<true>(keys, s.width, rows, TileA<true>{ds, kKeyTile}, queries, s.width, s.dk, s.width, prefetch);
  tile_product<false>(rows, s.width, keys, TileA<false>{ds, kKeyTile}, s.keys, s.width, s.dq + row * s.width, s.width,
                      prefetch);
}

// A whole tile of queries; where the diagonal crosses it, a few rows at a time with the keys these see. Returns the
// first row that saw any, from which on s.dq holds its part.
template <typename T>
int64 query_tile(const AttentionBackward& op, const Scratch& s, const float* delta, int64 head, int64 first,
                 int64 queries, int64 key, int64 keys, TilePrefetch& prefetch) {
  load_tile<T>(op.q, first, queries, head, op.head_dim, s.queries, s.width);
  load_tile<T>(op.dout, first, queries, head, op.head_dim, s.dout, s.width);
  if (visible_keys(op, first) - key >= keys) {
    query_rows(op, s, delta, head, first, 0, queries, key, keys, prefetch);
    return 0;
  }
  int64 first_row = queries;
  for (int64 row = 0; row < queries; row += kDiagonalStep) {
    const int64 rows = std::min(kDiagonalStep, queries - row);
    const int64 seen = std::min(keys, visible_keys(op, first + row + rows - 1) - key);
    if (seen <= 0) continue;
    first_row = std::min(first_row, row);
    query_rows(op, s, delta, head, first, row, rows, key, seen, prefetch);
  }
  return first_row;
}

template <typename T>
void key_tile(const AttentionBackward& op, const float* delta, Turns& turns, int64 tile, int64 kv_head) {
  const Scratch s(op.head_dim);
  const int64 key = tile * kKeyTile;
  const int64 keys = std::min(kKeyTile, op.k.rows - key);
  load_transposed<T>(op.k, key, keys, kv_head, op.head_dim, op.scale * kLog2E, s.keys_transposed, kKeyTile);
  load_transposed<T>(op.v, key, keys, kv_head, op.head_dim, 1.0f, s.values_transposed, kKeyTile);
  load_tile<T>(op.k, key, keys, kv_head, op.head_dim, s.keys, s.width);
  std::fill_n(s.dk, kKeyTile * s.width, 0.0f);
  std::fill_n(s.dv, kKeyTile * s.width, 0.0f);

  // The first query that sees a key of this tile, brought down to its tile of queries.
  const int64 first_query =
      op.mask == AttentionMask::full ? 0 : std::max<int64>(0, key - (op.k.rows - op.q.rows)) / kQueryTile * kQueryTile;
  const int64 query_tiles = ceil_div(op.q.rows, kQueryTile);
  const int64 group = op.heads / op.kv_heads;
  for (int64 first = first_query; first < op.q.rows; first += kQueryTile) {
    const int64 queries = std::min(kQueryTile, op.q.rows - first);
    for (int64 head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      TilePrefetch prefetch;
      prefetch.add(op.dq, first, queries, head, op.head_dim);
      const bool last_head = head + 1 == (kv_head + 1) * group;
      const int64 next = last_head ? first + kQueryTile : first;
      if (next < op.q.rows) {
        const int64 next_head = last_head ? kv_head * group : head + 1;
        const int64 rows = std::min(kQueryTile, op.q.rows - next);
        prefetch.add(op.q, next, rows, next_head, op.head_dim);
        prefetch.add(op.dout, next, rows, next_head, op.head_dim);
      }
      const float* tile_delta = delta + head * op.q.rows + first;
      const int64 row = query_tile<T>(op, s, tile_delta, head, first, queries, key, keys, prefetch);
      const int64 place = head * query_tiles + first / kQueryTile;
      turns.wait(place, tile);
      add_rows(op.dq, first + row, queries - row, head, op.head_dim, s.dq + row * s.width, s.width);
      turns.pass(place);
    }
  }
  add_rows(op.dk, key, keys, kv_head, op.head_dim, s.dk, s.width);
  add_rows(op.dv, key, keys, kv_head, op.head_dim, s.dv, s.width);
}

// delta[head][query] = rowsum(dout o), in the order in which tile_product.h sums dout v: where a query sees one key alone, so
// that o is v, their difference is 0 and not a rounding, which Adam would take for a gradient.
template <typename T>
void compute_delta(Stream& stream, const AttentionBackward& op, float* delta) {
  parallel_rows(stream, op.q.rows, op.q.cols, [&](int64 first, int64 last) {
    for (int64 i = first; i < last; ++i) {
      for (int64 head = 0; head < op.heads; ++head) {
        const T* o = op.o.row<const T>(i) + head * op.head_dim;
        const T* dout = op.dout.row<const T>(i) + head * op.head_dim;
        float sum = 0;
        for (int64 j = 0; j < op.head_dim; ++j) sum += to_float(o[j]) * to_float(dout[j]);
        delta[head * op.q.rows + i] = sum;
      }
    }
  });
}

}  // namespace

void attention_backward_cpu(Stream& stream, const AttentionBackward& op) {
  validate(op);
  const int64 needed = attention_backward_workspace_cpu(op);
  check(op.workspace.bytes() >= needed, "attention_backward: a workspace of {} bytes, {} needed", op.workspace.bytes(),
        needed);
  if (op.q.rows == 0) return;
  auto* delta = op.workspace.as<float>();
  const int64 key_tiles = ceil_div(op.k.rows, kKeyTile);
  Turns turns(op.heads * ceil_div(op.q.rows, kQueryTile));
  with_float_type(op.q.dtype, [&](auto type) {
    using T = decltype(type);
    compute_delta<T>(stream, op, delta);
    // Key tile by key tile: the longest tasks of a causal block come first.
    parallel_blocks(stream, key_tiles * op.kv_heads,
                    [&](int64 task) { key_tile<T>(op, delta, turns, task / op.kv_heads, task % op.kv_heads); });
  });
}

int64 attention_backward_workspace_cpu(const AttentionBackward& op) {
  return op.heads * op.q.rows * static_cast<int64>(sizeof(float));
}

}  // namespace megatoken
