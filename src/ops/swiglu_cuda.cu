// With s = 1 / (1 + exp(-gate)): act = gate s up; dup = dact gate s; dgate = dact up s (1 + gate (1 - s)).
#include "ops/cuda/launch.cuh"
#include "ops/op_table_cuda.h"

namespace megatoken {
namespace {

using namespace cuda;

// Far below 0 exp(-gate) is infinity and s is 0, so gate s is -0 as it should be to float32.
__device__ float sigmoid(float gate) { return 1.0f / (1.0f + __expf(-gate)); }

// up_aligned: the second half of a row starts on a 16-byte boundary too.
__global__ void swiglu_kernel(Rows<const Bf16> gate_up, Rows<Bf16> act, int64 rows, int64 cols, int64 across,
                              bool up_aligned) {
  const int64 row = tile_row(across);
  const int64 col = tile_col(across);
  if (row >= rows || col >= cols) return;
  const Bf16* from = gate_up.row(row) + col;
  float gate[kPack], up[kPack];
  load8(from, cols - col, gate_up.aligned, gate);
  load8(from + cols, cols - col, up_aligned, up);
#pragma unroll
  for (int i = 0; i < kPack; ++i) gate[i] = gate[i] * sigmoid(gate[i]) * up[i];
  store8(act.row(row) + col, cols - col, act.aligned, gate);
}

// dgate_up may be gate_up.
__global__ void swiglu_backward_kernel(Rows<const Bf16> gate_up, Rows<const Bf16> dact, Rows<Bf16> dgate_up, int64 rows,
                                       int64 cols, int64 across, bool halves_aligned) {
  const int64 row = tile_row(across);
  const int64 col = tile_col(across);
  if (row >= rows || col >= cols) return;
  const Bf16* from = gate_up.row(row) + col;
  float gate[kPack], up[kPack], d[kPack];
  load8(from, cols - col, gate_up.aligned, gate);
  load8(from + cols, cols - col, gate_up.aligned && halves_aligned, up);
  load8(dact.row(row) + col, cols - col, dact.aligned, d);
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const float g = gate[i], s = sigmoid(g);
    gate[i] = d[i] * up[i] * s * (1.0f + g * (1.0f - s));
    up[i] = d[i] * (g * s);
  }
  Bf16* to = dgate_up.row(row) + col;
  store8(to, cols - col, dgate_up.aligned, gate);
  store8(to + cols, cols - col, dgate_up.aligned && halves_aligned, up);
}

}  // namespace

void swiglu_cuda(Stream& stream, const Swiglu& op) {
  validate(op);
  require_bf16("swiglu", "gate_up", op.gate_up);
  if (op.act.empty()) return;
  CudaStream& cuda = cuda_stream(stream);
  const Tiles tiles(op.act.rows, op.act.cols);
  const Rows<const Bf16> gate_up = rows_of<const Bf16>(op.gate_up);
  swiglu_kernel<<<tiles.grid, tiles.block, 0, cuda.native()>>>(gate_up, rows_of<Bf16>(op.act), tiles.rows, tiles.cols,
                                                               tiles.across, gate_up.aligned && tiles.cols % kPack == 0);
  cuda.launched("swiglu");
}

void swiglu_backward_cuda(Stream& stream, const SwigluBackward& op) {
  validate(op);
  require_bf16("swiglu_backward", "gate_up", op.gate_up);
  if (op.dact.empty()) return;
  CudaStream& cuda = cuda_stream(stream);
  const Tiles tiles(op.dact.rows, op.dact.cols);
  swiglu_backward_kernel<<<tiles.grid, tiles.block, 0, cuda.native()>>>(
      rows_of<const Bf16>(op.gate_up), rows_of<const Bf16>(op.dact), rows_of<Bf16>(op.dgate_up), tiles.rows, tiles.cols,
      tiles.across, tiles.cols % kPack == 0);
  cuda.launched("swiglu_backward");
}

}  // namespace megatoken
