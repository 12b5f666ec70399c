// The model that a config.json describes. What the file says and this program does not do is refused by name
// (docs/configuration.md lists the keys); nothing is approximated.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "spec/rope.h"

namespace megatoken {

// The sparse layers' MLP: a router gives each token `per_token` of `count` experts, each a gated MLP, and optionally a
// shared expert that every token passes.
struct ExpertSpec {
  int64 count = 0;      // experts of a sparse layer; 0: every layer is dense
  int64 per_token = 0;  // experts a token is sent to, 1 ... count
  int64 intermediate_size = 0;
  int64 shared_intermediate_size = 0;  // of the shared expert, whose output a sigmoid gate scales; 0: none
  bool normalize = false;              // the weights of a token's experts are made to sum to 1
  int64 sparse_step = 1;               // layers step - 1, 2 step - 1, ... are sparse
  std::vector<int64> dense_layers;     // except these
  double aux_loss_coef = 0;            // weight of the load-balancing loss in training; 0: not computed
};

// How a checkpoint stores the experts of a layer: a tensor for each matrix of each expert, or all experts' gate and up
// matrices in one tensor [count, 2 * intermediate, H] and their down matrices in another.
enum class ExpertLayout { per_expert, fused };

// A decoder of `num_layers` layers: x += attention(norm(x)); x += mlp(norm(x)); causal attention over all positions.
struct ModelSpec {
  std::string source;      // the file it was read from, for messages
  std::string model_type;  // "qwen3", "qwen2", "llama", "qwen3_moe", "qwen2_moe", "mixtral"

  int64 vocab_size = 0;
  int64 hidden_size = 0;
  int64 intermediate_size = 0;  // of dense layers
  int64 num_layers = 0;
  int64 num_heads = 0;  // query heads; a multiple of num_kv_heads
  int64 num_kv_heads = 0;
  int64 head_dim = 0;  // even; num_heads * head_dim may differ from hidden_size

  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;  // the head weight is the embedding
  bool qk_norm = false;              // RMS norm of each query and key head, before rope (qwen3)
  bool qkv_bias = false;             // q_proj, k_proj and v_proj have a bias
  bool o_bias = false;               // o_proj has a bias
  bool mlp_bias = false;             // gate_proj, up_proj and down_proj have a bias (llama)

  ExpertSpec experts;
  ExpertLayout expert_layout = ExpertLayout::per_expert;  // of the weights that were read; transformers' own by default

  int64 max_position_embeddings = 0;
  double initializer_range = 0.02;  // standard deviation of random weights
  RopeSpec rope;
  bool rope_overridden = false;  // rope or max_position_embeddings are not those of the file

  std::vector<int64> eos_token_ids;  // empty, one or several
  std::optional<int64> bos_token_id;
  std::optional<int64> pad_token_id;
  std::optional<DType> stored_dtype;  // dtype / torch_dtype of the file

  std::string config_text;  // the file as read, kept for saving

  int64 query_size() const { return num_heads * head_dim; }
  int64 kv_size() const { return num_kv_heads * head_dim; }
  int64 heads_per_kv() const { return num_heads / num_kv_heads; }
  bool is_sparse(int64 layer) const;
  int64 sparse_layers() const;  // how many

  // Reads `model_dir/config.json`. Throws FileError.
  static ModelSpec from_directory(const std::string& model_dir);
  // `text` is the content of a config.json; `source` names it in messages. Throws FileError.
  static ModelSpec from_config_json(std::string_view text, const std::string& source);
};

// Trainable weights; tied embeddings count once.
int64 count_parameters(const ModelSpec& model);
// Those that work on a token: of the experts, the ones it is sent to.
int64 count_active_parameters(const ModelSpec& model);

// A run's own rope: the JSON of its rope_parameters or rope_scaling key, named `key` in messages (ConfigError); and
// max_position_embeddings where given. Either may be absent. YaRN and dynamic fall back as transformers does.
struct RopeOverride {
  std::string key;  // "rope_parameters", "model_init_kwargs.rope_scaling", ...
  std::string parameters_json;
  std::optional<int64> max_position_embeddings;
  bool empty() const { return parameters_json.empty() && !max_position_embeddings; }
  bool operator==(const RopeOverride&) const = default;
};
void override_rope(ModelSpec& model, const RopeOverride& rope);

// The config.json to save beside weights of `dtype`: the file as read, with the rope that was trained and that dtype.
// Loads alike in transformers 4 and 5.
std::string config_json_to_save(const ModelSpec& model, DType dtype);

}  // namespace megatoken
