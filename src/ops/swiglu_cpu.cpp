// With s = 1 / (1 + exp(-gate)): act = gate s up; dup = dact gate s; dgate = dact up s (1 + gate (1 - s)).
#include "ops/cpu/elements.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/vector.h"
#include "ops/op_table_cpu.h"

namespace megatoken {
namespace {

// Below -88.7 exp(-gate) is infinity and s is 0, so gate s is -0 as it should be to float32.
Vec sigmoid(Vec gate) { return 1.0f / (1.0f + exp(-gate)); }

// Calls f(column, lanes) over n columns: whole vectors, then one part.
template <typename F>
void vectors(int64 n, const F& f) {
  int64 j = 0;
  for (; j + kLanes <= n; j += kLanes) f(j, kLanes);
  if (j < n) f(j, n - j);
}

template <typename T>
void write(T* p, Vec v, int64 lanes) {
  if (std::is_same_v<T, float> && lanes == kLanes)
    store(reinterpret_cast<float*>(p), v);
  else
    store_part(p, v, lanes);
}

}  // namespace

void swiglu_cpu(Stream& stream, const Swiglu& op) {
  validate(op);
  with_float_type(op.act.dtype, [&](auto type) {
    using T = decltype(type);
    parallel_pieces(stream, op.act.rows, op.act.cols, [&](int64 row, int64 first, int64 last) {
      const T* gate = op.gate_up.row<const T>(row) + first;
      const T* up = gate + op.act.cols;
      T* act = op.act.row<T>(row) + first;
      vectors(last - first, [&](int64 j, int64 lanes) {
        const Vec g = load_first(gate + j, lanes);
        write(act + j, g * sigmoid(g) * load_first(up + j, lanes), lanes);
      });
    });
  });
}

void swiglu_backward_cpu(Stream& stream, const SwigluBackward& op) {
  validate(op);
  with_float_type(op.dact.dtype, [&](auto type) {
    using T = decltype(type);
    parallel_pieces(stream, op.dact.rows, op.dact.cols, [&](int64 row, int64 first, int64 last) {
      const T* gate = op.gate_up.row<const T>(row) + first;
      const T* up = gate + op.dact.cols;
      const T* dact = op.dact.row<const T>(row) + first;
      T* dgate = op.dgate_up.row<T>(row) + first;
      T* dup = dgate + op.dact.cols;
      vectors(last - first, [&](int64 j, int64 lanes) {
        const Vec g = load_first(gate + j, lanes);
        const Vec u = load_first(up + j, lanes);
        const Vec d = load_first(dact + j, lanes);
        const Vec s = sigmoid(g);
        write(dgate + j, d * u * s * (1.0f + g * (1.0f - s)), lanes);
        write(dup + j, d * (g * s), lanes);
      });
    });
  });
}

}  // namespace megatoken
