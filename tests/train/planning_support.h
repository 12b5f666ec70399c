// What the planner's tests share.
#pragma once

#include "train/machine_rates.h"
#include "train/planned_run.h"

namespace megatoken {

inline constexpr int64 kMiB = int64{1} << 20;
inline constexpr int64 kGiB = int64{1} << 30;

inline ModelSpec model_of(int64 layers, int64 kv_heads, int64 heads_per_kv, int64 hidden, bool tied) {
  return ModelSpec::from_config_json(
      fmt::format(R"({{"model_type": "qwen3", "vocab_size": 4096, "hidden_size": {}, "intermediate_size": {},
        "num_hidden_layers": {}, "num_attention_heads": {}, "num_key_value_heads": {}, "head_dim": 64, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": {}, "max_position_embeddings": 512, "rope_theta": 10000.0, "hidden_act": "silu",
        "attention_bias": false}})",
                  hidden, 3 * hidden, layers, kv_heads * heads_per_kv, kv_heads, tied),
      "test");
}

// One row of tokens of a model of bench/models, on GPUs.
inline RunShape long_shape(const std::string& model, int64 tokens, int64 ranks) {
  RunShape shape;
  shape.model = ModelSpec::from_directory(std::string(MEGATOKEN_TEST_DATA) + "/../bench/models/" + model);
  shape.mesh.cp = ranks;
  shape.dtype = DType::bf16;
  shape.on_cuda = true;
  shape.train_documents = {tokens};
  return shape;
}

}  // namespace megatoken
