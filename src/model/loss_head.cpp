#include "model/loss_head.h"

#include <algorithm>

namespace megatoken {

void loss_head(StepOps& ops, const ModelSpec& spec, const Policy& policy, const View& norm, const View& weight,
               const View& x, const LabelledRows& rows, const LossGradients* gradients) {
  auto& ctx = ops.context();
  const int64 total = rows.index.rows;
  const int64 tile = policy.loss_tile == 0 ? std::max<int64>(total, 1) : policy.loss_tile;
  const int64 hidden = spec.hidden_size, vocab = spec.vocab_size;
  const auto eps = static_cast<float>(spec.rms_norm_eps);
  for (const int64 t : ctx.loop("loss tile", (total + tile - 1) / tile, {.period = 1})) {
    const int64 n = std::min(tile, total - t * tile);
    const auto part = [&](const View& v) { return v.row_range(t * tile, n); };
    Buffer hidden_rows = ctx.buffer("labelled rows", n, hidden, x.dtype);
    Buffer h = ctx.buffer("normalized labelled rows", n, hidden, x.dtype);
    Buffer logits = ctx.buffer("logits", n, vocab, DType::f32);
    ops.gather_rows("gather labelled rows", {x, part(rows.index), hidden_rows});
    ops.rms_norm("final norm", {hidden_rows, norm, h, eps});
    ops.gemm("head", {h, weight, logits, {}, false, true});
    Buffer rounded;  // the logits' gradient in the storage type
    View dlogits;
    if (gradients != nullptr) {
      if (x.dtype != DType::f32) rounded = ctx.buffer("logit gradients", n, vocab, x.dtype);
      dlogits = rounded.held() ? rounded.view() : logits.view();
    }
    ops.cross_entropy("cross-entropy", {logits, part(rows.labels), part(rows.loss), part(rows.correct), part(rows.entropy),
                                        dlogits});
    if (gradients == nullptr) continue;
    if (rounded.held()) logits.reset();
    ops.gemm("head weight gradient", {dlogits, h, gradients->weight, gradients->weight, true, false});
    Buffer dh = ctx.buffer("normalized labelled row gradients", n, hidden, DType::f32);
    ops.gemm("head input gradient", {dlogits, weight, dh, {}, false, false});
    Buffer drows = ctx.buffer("labelled row gradients", n, hidden, x.dtype);
    ops.rms_norm_backward("final norm backward", {hidden_rows, norm, dh, {}, drows, gradients->norm, eps});
    ops.scatter_rows("scatter labelled row gradients", {drows, part(rows.index), gradients->dx});
  }
}

}  // namespace megatoken
