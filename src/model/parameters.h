// The parameters of a model family as flat buckets, and a layer's parameters as views of its bucket.
#pragma once

#include <vector>

#include "parallel/bucket.h"
#include "spec/model_spec.h"
#include "tensor/view.h"

namespace megatoken {

// Bucket 0 is the embedding, 1 ... num_layers the layers, num_layers + 1 the head (final norm, and the head weight
// unless it is the embedding).
inline constexpr int64 kEmbeddingBucket = 0;
inline constexpr int64 kFirstLayerBucket = 1;
inline int64 head_bucket(const ModelSpec& spec) { return kFirstLayerBucket + spec.num_layers; }

// Names are those of transformers' modules; stored_names those of the checkpoint's layout (spec.expert_layout).
std::vector<BucketSpec> make_buckets(const ModelSpec& spec);

// Weights or gradients of one layer. Biases and q/k norms are absent where the family has none; a sparse layer has a
// router and experts in place of gate_up and down, and those of the shared expert there where it has one.
struct LayerViews {
  View input_norm;            // [1, H]
  View q, k, v;               // [n * D, H]
  View q_bias, k_bias, v_bias;  // [1, n * D]
  View q_norm, k_norm;        // [1, D]
  View o;                     // [H, Nq * D]
  View o_bias;                // [1, H]
  View post_norm;             // [1, H]
  View router;                // [E, H]
  View expert_gate_up;        // [E * 2M, H]: of each expert gate then up, M rows each
  View expert_down;           // [E * H, M]
  View shared_gate;           // [1, H]: of the shared expert
  View gate_up;               // [2I, H]: gate then up
  View gate_up_bias;          // [1, 2I]
  View down;                  // [H, I]
  View down_bias;             // [1, H]

  bool sparse() const { return !router.absent(); }
};
// bucket: the layer's whole bucket as [1, >= elements].
LayerViews layer_views(const ModelSpec& spec, const BucketSpec& layout, const View& bucket);

struct HeadViews {
  View norm;   // [1, H]
  View weight;  // [V, H]; absent in a tied head's bucket
};
HeadViews head_views(const ModelSpec& spec, const BucketSpec& layout, const View& bucket);
// [V, H] of the embedding's bucket.
View embedding_view(const ModelSpec& spec, const View& bucket);

}  // namespace megatoken
