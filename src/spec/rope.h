// Rotary position embedding: what a model's configuration says, and the inverse frequencies it stands for.
// Formulas and fallbacks: transformers 5.24, modeling_rope_utils.py; all arithmetic in float32 in the same order.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace megatoken {

// `none` is transformers' "default": the plain frequencies theta^(-2i/d).
enum class RopeKind { none, linear, dynamic, llama3, yarn };

// The spelling of configuration files: "default", "linear", "dynamic", "llama3", "yarn".
std::string_view name_of(RopeKind kind);

// Every value is resolved: fallbacks have been applied, so nothing here depends on a key that was absent.
struct RopeSpec {
  RopeKind kind = RopeKind::none;
  double theta = 10000.0;
  int64 head_dim = 0;                          // all of it is rotated; even
  int64 max_position_embeddings = 0;           // of the model; dynamic only grows beyond it
  double factor = 1.0;                         // linear, dynamic, llama3, yarn
  int64 original_max_position_embeddings = 0;  // llama3, yarn; 0 otherwise
  double low_freq_factor = 1.0;                // llama3
  double high_freq_factor = 4.0;               // llama3
  double beta_fast = 32.0;                     // yarn
  double beta_slow = 1.0;                      // yarn
  bool truncate = true;                        // yarn: whole dimensions at the ends of the ramp
  std::optional<double> attention_factor;      // yarn, when the file gives it
  std::optional<double> mscale;                // yarn
  std::optional<double> mscale_all_dim;        // yarn

  bool operator==(const RopeSpec&) const = default;
};

struct RopeFrequencies {
  std::vector<float> inv_freq;   // [head_dim / 2], radians per position
  float attention_factor = 1.0;  // multiplies cos and sin
};

// Frequencies for a document of `sequence_length` tokens. Only `dynamic` depends on the length (0: as for any length up
// to max_position_embeddings).
RopeFrequencies rope_inverse_frequencies(const RopeSpec& rope, int64 sequence_length);

// True when frequencies differ between documents of different lengths.
inline bool depends_on_length(const RopeSpec& rope) { return rope.kind == RopeKind::dynamic; }

// One line for people: "yarn x32 (theta 1e+06, original 32768, attention factor 1.34657)".
std::string describe(const RopeSpec& rope);

// What is needed besides the rope keys themselves.
struct RopeContext {
  int64 head_dim = 0;
  int64 max_position_embeddings = 0;
  double theta = 10000.0;  // the family's, where the file has no rope_theta
};

// Reads the rope of a model configuration: rope_theta with rope_scaling (`type` or `rope_type`), or rope_parameters;
// a non-empty rope_scaling wins over rope_parameters and a rope_theta inside either wins over the one beside it.
// Throws std::invalid_argument whose text names the key and value; the caller adds the file.
RopeSpec rope_from_config(const nlohmann::json& config, const RopeContext& context);

// Replaces the rope by `parameters` (the value of a rope_parameters or rope_scaling key in a run's configuration);
// a missing rope_theta is taken from `base`. Throws std::invalid_argument as above.
RopeSpec rope_from_parameters(const nlohmann::json& parameters, const RopeSpec& base, const RopeContext& context);

// The keys rope_theta, rope_scaling and rope_parameters that transformers 4 and 5 both read as `rope`; set in `config`.
void write_rope(const RopeSpec& rope, nlohmann::ordered_json& config);

}  // namespace megatoken
