#include "model/micro_batch.h"

#include <algorithm>

#include "model/activation_store.h"
#include "model/decoder_layer.h"
#include "model/loss_head.h"
#include "model/parameters.h"
#include "parallel/bucket_traffic.h"

namespace megatoken {
namespace {

// The micro-batch's arrays on the device, uploaded at construction, and its results.
class DeviceBatch {
 public:
  DeviceBatch(StepOps& ops, const ModelSpec& spec, LocalBatch& batch) : ops_(ops), batch_(batch) {
    const int64 rows = batch.rows(), labelled = batch.labelled;
    ids_ = upload("token ids", rows, 1, DType::i32, batch.ids.data());
    positions_ = upload("positions", rows, 1, DType::i32, batch.positions.data());
    frequency_index_ = upload("rope table of tokens", rows, 1, DType::i32, batch.frequency_index.data());
    inverse_frequency_ = upload("rope frequencies", batch.frequency_tables, spec.head_dim / 2, DType::f32,
                                batch.inverse_frequency.data());
    index_ = upload("labelled row index", labelled, 1, DType::i32, batch.labelled_rows.data());
    labels_ = upload("labels", labelled, 1, DType::i32, batch.labels.data());
    auto& ctx = ops.context();
    if (spec.experts.count > 0) counted_ = upload("counted tokens", rows, 1, DType::u8, batch.counted.data());
    loss_ = ctx.buffer("token losses", labelled, 1, DType::f32);
    correct_ = ctx.buffer("token hits", labelled, 1, DType::f32);
    entropy_ = ctx.buffer("token entropies", labelled, 1, DType::f32);
    ctx.wait(uploaded_, "the micro-batch");
  }

  const View& ids() const { return ids_.view(); }
  View counted() const { return counted_.held() ? counted_.view() : View(); }
  TokenTables tables() const { return {positions_, frequency_index_, inverse_frequency_, batch_.attention_factor}; }
  LabelledRows labelled_rows() const { return {index_, labels_, loss_, correct_, entropy_}; }

  void download() {
    download("token losses", loss_, batch_.loss);
    download("token hits", correct_, batch_.correct);
    download("token entropies", entropy_, batch_.entropy);
  }

 private:
  Buffer upload(const std::string& name, int64 rows, int64 cols, DType dtype, void* data) {
    Buffer to = ops_.context().buffer(name, rows, cols, dtype);
    uploaded_ = ops_.copy(StreamId::h2d, name, ops_.context().external("host " + name, rows, cols, dtype, data, Place::host), to);
    return to;
  }
  void download(const std::string& name, const Buffer& from, std::vector<float>& to) {
    ops_.copy(StreamId::d2h, name, from,
              ops_.context().external("host " + name, batch_.labelled, 1, DType::f32, to.data(), Place::host));
  }

  StepOps& ops_;
  LocalBatch& batch_;
  Buffer ids_, positions_, frequency_index_, inverse_frequency_, index_, labels_, counted_, loss_, correct_, entropy_;
  Ticket uploaded_;
};

// The routing of each sparse layer from forward to backward, and the load-balancing loss over all of them.
class ExpertStore {
 public:
  // train: routings are kept, and the loss is computed where the model asks for it.
  ExpertStore(StepOps& ops, const ModelRun& run, const LocalBatch& batch, const View& counted, bool train)
      : ops_(ops), run_(run), train_(train) {
    const ExpertSpec& e = run.spec.experts;
    const int64 sparse = run.spec.sparse_layers();
    if (sparse == 0) return;
    auto& ctx = ops.context();
    for (int64 i = 0, n = 0; i < run.spec.num_layers; ++i) slots_.push_back(run.spec.is_sparse(i) ? n++ : -1);
    const int64 kept = train ? sparse : 1;
    experts_ = ctx.array("choice of experts", kept, batch.rows(), e.per_token, DType::i32);
    weights_ = ctx.array("weights of chosen experts", kept, batch.rows(), e.per_token, DType::f32);
    if (!train || e.aux_loss_coef == 0) return;
    counted_ = counted;
    rows_ = static_cast<double>(batch.tokens()) * static_cast<double>(sparse);
    scale_ = batch.balance_scale;
    sums_ = ctx.buffer("router sums", 1, 2 * e.count, DType::f64);
    ops.fill_zero("zero router sums", {sums_});
  }

  DecoderLayer::Experts of(int64 layer, bool decided) const {
    DecoderLayer::Experts experts;
    if (slots_.empty() || slots_[static_cast<std::size_t>(layer)] < 0) return experts;
    const int64 slot = train_ ? slots_[static_cast<std::size_t>(layer)] : 0;
    experts.routing = {experts_.at(slot), weights_.at(slot)};
    experts.balance.counted = counted_;
    if (sums_.held() && !decided) experts.balance.sums = sums_;
    if (gradient_.held()) experts.balance.gradient = gradient_;
    experts.decided = decided;
    return experts;
  }

  // After forward: the sums of all ranks of the sequence give the loss and its gradient.
  void balance(LocalBatch& batch) {
    if (!sums_.held()) return;
    auto& ctx = ops_.context();
    const int64 ranks = batch.layout.cp(), experts = run_.spec.experts.count;
    Buffer all;
    if (ranks > 1) {
      all = ctx.buffer("router sums of all ranks", ranks, 2 * experts, DType::f64);
      ctx.wait(ops_.all_gather("gather router sums", run_.cp_group, ranks, sums_, all), "router sums");
    }
    gradient_ = ctx.buffer("balance gradient", 1, experts, DType::f32);
    Buffer loss = ctx.buffer("load-balancing loss", 1, 1, DType::f32);
    ops_.balance_loss("load-balancing loss", {ranks > 1 ? all : sums_, rows_, scale_, loss, gradient_});
    ops_.copy(StreamId::d2h, "load-balancing loss", loss,
              ctx.external("host load-balancing loss", 1, 1, DType::f32, &batch.aux_loss, Place::host));
  }

 private:
  StepOps& ops_;
  const ModelRun& run_;
  bool train_;
  std::vector<int64> slots_;  // by layer; -1: dense
  Array experts_, weights_;
  View counted_;
  double rows_ = 0, scale_ = 0;
  Buffer sums_, gradient_;
};

// Weights of one layer after the other, the next one on its way while this one is used.
class LayerWeights {
 public:
  LayerWeights(const ModelRun& run, WeightGather& gather, bool executing)
      : run_(run), gather_(gather), executing_(executing) {}

  // next: the layer of the following call, -1 when there is none.
  LayerViews use(int64 layer, int64 next) {
    current_ = {};
    if (ahead_layer_ >= 0) {
      // A collapsed loop skips layers; an executed one never does.
      check(!executing_ || ahead_layer_ == layer, "layer {} was gathered ahead, not {}", ahead_layer_, layer);
      current_ = std::move(ahead_);
    } else {
      current_ = gather_.start(kFirstLayerBucket + layer);
    }
    const View bucket = gather_.wait(current_);
    ahead_layer_ = run_.policy.prefetch > 0 ? next : -1;
    if (ahead_layer_ >= 0) ahead_ = gather_.start(kFirstLayerBucket + ahead_layer_);
    return layer_views(run_.spec, run_.parameters.buckets()[static_cast<std::size_t>(kFirstLayerBucket + layer)], bucket);
  }
  void end() { current_ = {}; }

 private:
  const ModelRun& run_;
  WeightGather& gather_;
  WeightGather::Handle current_, ahead_;
  int64 ahead_layer_ = -1;
  bool executing_;
};

class MicroBatch {
 public:
  MicroBatch(StepOps& ops, const ModelRun& run, LocalBatch& batch, bool train)
      : ops_(ops),
        ctx_(ops.context()),
        run_(run),
        train_(train),
        batch_(batch),
        part_{batch.layout, batch.schedule, batch.cp_rank, run.cp_group, run.policy.exchange},
        tokens_(ops, run.spec, batch),
        gather_(ops, run.parameters, run.shard_group, kFirstLayerBucket, run.spec.num_layers, run.policy.prefetch),
        reduce_(ops, run.parameters, run.shard_group, kFirstLayerBucket, train ? run.spec.num_layers : 0),
        weights_(run, gather_, ctx_.executing()),
        layer_(ops, run.spec, run.policy, part_, run.parameters.dtype(), tokens_.tables()),
        store_(ops, run.spec, run.policy, batch.rows(), run.parameters.dtype(), train),
        experts_(ops, run, batch, tokens_.counted(), train) {}

  void run() {
    ActivationStore::Held x = forward();
    experts_.balance(batch_);
    if (train_)
      dx_ = ctx_.buffer("hidden state gradient", part_.rows(), run_.spec.hidden_size, run_.parameters.dtype());
    const Ticket head = loss(x.view);
    x = {};
    tokens_.download();
    if (!train_) return;
    store_.turn();
    const auto runs = layer_runs(run_.policy, run_.spec);
    for (auto it = runs.rbegin(); it != runs.rend(); ++it) {
      if (it->input == Keep::recompute)
        backward_segments(*it, head);
      else
        backward_run(*it, head);
    }
    weights_.end();
    auto gradient = reduce_.begin(kEmbeddingBucket);
    ops_.embedding_backward("embedding backward", {tokens_.ids(), dx_, embedding_view(run_.spec, gradient.view)});
    reduce_.end(std::move(gradient));
  }

 private:
  ActivationStore::Held forward() {
    ActivationStore::Held x = store_.input(0);
    {
      auto table = gather_.start(kEmbeddingBucket);
      ops_.embedding("embedding", {tokens_.ids(), embedding_view(run_.spec, gather_.wait(table)), x.view});
    }
    const int64 layers = run_.spec.num_layers;
    for (const LayerRun& of : layer_runs(run_.policy, run_.spec))
      for (const int64 j : ctx_.loop("layer", of.count, {.period = forward_period(of)})) {
        const int64 i = of.first + j;
        const LayerViews w = weights_.use(i, i + 1 < layers ? i + 1 : -1);
        store_.keep_input(i, x);
        ActivationStore::Held o = store_.output(i);
        layer_.forward_attention(w, x.view, o.view, o.lse);
        store_.keep_output(i, o);
        ActivationStore::Held next = store_.input(i + 1);
        layer_.forward_mlp(w, experts_.of(i, false), x.view, o.view, next.view);
        x = std::move(next);
      }
    weights_.end();
    store_.end_outputs();
    return x;
  }

  // Of a segment only the first input is kept, and inputs that aren't kept on the device pass through a ring of two, as
  // layers' weights do: after how many layers all is as before.
  int64 forward_period(const LayerRun& of) const {
    if (of.input != Keep::recompute) return 2;
    const int64 segment = run_.policy.recompute_segment;
    return run_.policy.segment_input == Keep::host && segment % 2 == 0 ? segment : 2 * segment;
  }

  // Returns a ticket after which the head's gradient buffers are free.
  Ticket loss(const View& x) {
    const ModelSpec& spec = run_.spec;
    const BucketSpec& layout = run_.parameters.buckets()[static_cast<std::size_t>(head_bucket(spec))];
    auto head = gather_.start(head_bucket(spec));
    WeightGather::Handle table;
    if (spec.tie_word_embeddings) table = gather_.start(kEmbeddingBucket);
    const HeadViews w = head_views(spec, layout, gather_.wait(head));
    const View weight = spec.tie_word_embeddings ? embedding_view(spec, gather_.wait(table)) : w.weight;
    if (!train_) {
      loss_head(ops_, spec, run_.policy, w.norm, weight, x, tokens_.labelled_rows(), nullptr);
      return {};
    }
    ops_.fill_zero("zero hidden state gradient", {dx_});
    auto head_gradient = reduce_.begin(head_bucket(spec));
    GradientReduce::Handle table_gradient;
    if (spec.tie_word_embeddings) table_gradient = reduce_.begin(kEmbeddingBucket);
    const HeadViews g = head_views(spec, layout, head_gradient.view);
    const LossGradients gradients{
        g.norm, spec.tie_word_embeddings ? embedding_view(spec, table_gradient.view) : g.weight, dx_};
    loss_head(ops_, spec, run_.policy, w.norm, weight, x, tokens_.labelled_rows(), &gradients);
    Ticket done = reduce_.end(std::move(head_gradient));
    if (spec.tie_word_embeddings) done = reduce_.end(std::move(table_gradient));
    return done;
  }

  // The layer whose weights are needed first when backward has come down to `layer`: the first of its segment where
  // inputs are recomputed. -1 below the first layer.
  int64 first_use(int64 layer) const {
    for (const LayerRun& of : layer_runs(run_.policy, run_.spec))
      if (layer >= of.first && layer < of.first + of.count && of.input == Keep::recompute)
        return layer - (layer - of.first) % run_.policy.recompute_segment;
    return layer;
  }

  // head: of loss(); its gradient buffers are needed again for the embedding's at the latest.
  void backward_layer(int64 i, int64 next, const View& x, ActivationStore::Held o, const Ticket& head) {
    const LayerViews w = weights_.use(i, next);
    if (o.view.absent()) {
      o = store_.recomputed_output();
      layer_.forward_attention(w, x, o.view, o.lse);
    }
    auto gradient = reduce_.begin(kFirstLayerBucket + i);
    const LayerViews g = layer_views(
        run_.spec, run_.parameters.buckets()[static_cast<std::size_t>(kFirstLayerBucket + i)], gradient.view);
    layer_.backward(w, g, experts_.of(i, true), x, o.view, o.lse, dx_);
    reduce_.end(std::move(gradient));
    ctx_.wait(head, "head gradients");
  }

  struct Fetched {
    ActivationStore::Held input, output;
  };
  Fetched fetch(int64 layer) { return {store_.fetch_input(layer), store_.fetch_output(layer)}; }

  void backward_run(const LayerRun& of, const Ticket& head) {
    Fetched ahead;
    const bool lead = run_.policy.prefetch > 0;
    if (lead) ahead = fetch(of.first + of.count - 1);
    for (const int64 j : ctx_.loop("layer backward", of.count, {.reverse = true})) {
      const int64 i = of.first + j;
      Fetched now;
      if (lead) {
        now = std::move(ahead);
        if (j > 0) ahead = fetch(i - 1);
      } else {
        now = fetch(i);
      }
      store_.wait(now.input);
      store_.wait(now.output);
      backward_layer(i, first_use(i - 1), now.input.view, std::move(now.output), head);
    }
  }

  // A run of layers whose inputs are recomputed, segment by segment, from each segment's first input.
  void backward_segments(const LayerRun& of, const Ticket& head) {
    const int64 length = run_.policy.recompute_segment;
    const int64 segments = (of.count + length - 1) / length;
    for (const int64 s : ctx_.loop("segment backward", segments, {.reverse = true})) {
      const int64 first = of.first + s * length;
      const int64 count = std::min(length, of.first + of.count - first);
      const ActivationStore::Held kept = store_.fetch_input(first);
      store_.wait(kept);
      Array inputs;
      if (count > 1)
        inputs = ctx_.array("recomputed layer inputs", count - 1, part_.rows(), run_.spec.hidden_size, run_.parameters.dtype());
      const auto input = [&](int64 j) { return j == 0 ? kept.view : inputs.at(j - 1); };
      for (const int64 j : ctx_.loop("layer again", count - 1, {.collapse = false})) {
        const LayerViews w = weights_.use(first + j, first + j + 1);
        ActivationStore::Held o = store_.fetch_output(first + j);
        store_.wait(o);
        if (o.view.absent()) {
          o = store_.recomputed_output();
          layer_.forward_attention(w, input(j), o.view, o.lse);
        }
        layer_.forward_mlp(w, experts_.of(first + j, true), input(j), o.view, input(j + 1));
      }
      for (const int64 j : ctx_.loop("layer backward", count, {.reverse = true, .collapse = false})) {
        ActivationStore::Held o = store_.fetch_output(first + j);
        store_.wait(o);
        backward_layer(first + j, j > 0 ? first + j - 1 : first_use(first - 1), input(j), std::move(o), head);
      }
    }
  }

  StepOps& ops_;
  StepContext& ctx_;
  const ModelRun& run_;
  bool train_;
  LocalBatch& batch_;
  SequencePart part_;
  DeviceBatch tokens_;
  WeightGather gather_;
  GradientReduce reduce_;
  LayerWeights weights_;
  DecoderLayer layer_;
  ActivationStore store_;
  ExpertStore experts_;
  Buffer dx_;
};

}  // namespace

void train_micro_batch(StepOps& ops, const ModelRun& run, LocalBatch& batch) {
  { MicroBatch(ops, run, batch, true).run(); }
  ops.context().finish();
}

void evaluate_micro_batch(StepOps& ops, const ModelRun& run, LocalBatch& batch) {
  { MicroBatch(ops, run, batch, false).run(); }
  ops.context().finish();
}

}  // namespace megatoken
