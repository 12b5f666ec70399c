// Float32 arithmetic in torch's order: each line below is one or more torch operations, so products and sums must not
// be contracted into fused multiply-adds.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=off")
#elif defined(__clang__)
#pragma clang fp contract(off)
#endif

#include "spec/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace megatoken {
namespace {

// base^(2i / dim) for i in [0, dim / 2).
std::vector<float> position_frequencies(float base, int64 dim) {
  std::vector<float> result(static_cast<std::size_t>(dim / 2));
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = std::pow(base, static_cast<float>(2 * i) / static_cast<float>(dim));
  return result;
}

std::vector<float> plain_frequencies(float base, int64 dim) {
  std::vector<float> result = position_frequencies(base, dim);
  for (float& f : result) f = 1.0f / f;
  return result;
}

// NTK-aware scaling: theta * (factor * n / max - (factor - 1))^(d / (d - 2)); the power alone is taken in float64, as
// torch does for a scalar tensor and a Python exponent.
float dynamic_base(const RopeSpec& rope, int64 sequence_length) {
  if (sequence_length <= rope.max_position_embeddings) return static_cast<float>(rope.theta);
  const float factor = static_cast<float>(rope.factor);
  const float stretched =
      factor * static_cast<float>(sequence_length) / static_cast<float>(rope.max_position_embeddings) -
      static_cast<float>(rope.factor - 1.0);
  const double dim = static_cast<double>(rope.head_dim);
  return static_cast<float>(rope.theta) *
         static_cast<float>(std::pow(static_cast<double>(stretched), dim / (dim - 2.0)));
}

void scale_llama3(const RopeSpec& rope, std::vector<float>& inv_freq) {
  const double original = static_cast<double>(rope.original_max_position_embeddings);
  const float longest = static_cast<float>(original / rope.low_freq_factor);
  const float shortest = static_cast<float>(original / rope.high_freq_factor);
  const float factor = static_cast<float>(rope.factor);
  for (float& f : inv_freq) {
    const float wavelength = 1.0f / f * static_cast<float>(2.0 * std::numbers::pi);
    if (wavelength > longest) {
      f = f / factor;
    } else if (!(wavelength < shortest)) {
      const float smooth =
          (1.0f / wavelength * static_cast<float>(original) - static_cast<float>(rope.low_freq_factor)) /
          static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
      const float scaled = (1.0f - smooth) * f / factor;
      f = scaled + smooth * f;
    }
  }
}

// The dimension whose frequency turns `rotations` times within the original length.
double correction_dimension(const RopeSpec& rope, double rotations) {
  const double original = static_cast<double>(rope.original_max_position_embeddings);
  return static_cast<double>(rope.head_dim) * std::log(original / (rotations * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(rope.theta));
}

std::vector<float> yarn_frequencies(const RopeSpec& rope) {
  double low = correction_dimension(rope, rope.beta_fast);
  double high = correction_dimension(rope, rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rope.head_dim - 1));
  if (low == high) high += 0.001;

  std::vector<float> result = position_frequencies(static_cast<float>(rope.theta), rope.head_dim);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const float extrapolated = 1.0f / result[i];
    const float interpolated = 1.0f / (static_cast<float>(rope.factor) * result[i]);
    const float ramp =
        std::clamp((static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f, 1.0f);
    const float keep = 1.0f - ramp;
    const float from_interpolated = interpolated * (1.0f - keep);
    const float from_extrapolated = extrapolated * keep;
    result[i] = from_interpolated + from_extrapolated;
  }
  return result;
}

double yarn_attention_factor(const RopeSpec& rope) {
  if (rope.attention_factor) return *rope.attention_factor;
  const auto scale = [&](double mscale) {
    return rope.factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(rope.factor) + 1.0;
  };
  const bool both = rope.mscale.value_or(0.0) != 0.0 && rope.mscale_all_dim.value_or(0.0) != 0.0;
  return both ? scale(*rope.mscale) / scale(*rope.mscale_all_dim) : scale(1.0);
}

}  // namespace

std::string_view name_of(RopeKind kind) {
  switch (kind) {
    case RopeKind::none:
      return "default";
    case RopeKind::linear:
      return "linear";
    case RopeKind::dynamic:
      return "dynamic";
    case RopeKind::llama3:
      return "llama3";
    case RopeKind::yarn:
      return "yarn";
  }
  return "unknown";
}

RopeFrequencies rope_inverse_frequencies(const RopeSpec& rope, int64 sequence_length) {
  const float theta = static_cast<float>(rope.theta);
  RopeFrequencies result;
  switch (rope.kind) {
    case RopeKind::none:
      result.inv_freq = plain_frequencies(theta, rope.head_dim);
      break;
    case RopeKind::linear:
      result.inv_freq = plain_frequencies(theta, rope.head_dim);
      for (float& f : result.inv_freq) f /= static_cast<float>(rope.factor);
      break;
    case RopeKind::dynamic:
      result.inv_freq = plain_frequencies(dynamic_base(rope, sequence_length), rope.head_dim);
      break;
    case RopeKind::llama3:
      result.inv_freq = plain_frequencies(theta, rope.head_dim);
      scale_llama3(rope, result.inv_freq);
      break;
    case RopeKind::yarn:
      result.inv_freq = yarn_frequencies(rope);
      result.attention_factor = static_cast<float>(yarn_attention_factor(rope));
      break;
  }
  return result;
}

std::string describe(const RopeSpec& rope) {
  std::string details = fmt::format("theta {:g}", rope.theta);
  if (rope.original_max_position_embeddings > 0)
    details += fmt::format(", original {}", rope.original_max_position_embeddings);
  if (rope.kind == RopeKind::yarn) details += fmt::format(", attention factor {:.6g}", yarn_attention_factor(rope));
  const std::string name(name_of(rope.kind));
  return rope.kind == RopeKind::none ? fmt::format("{} ({})", name, details)
                                     : fmt::format("{} x{:g} ({})", name, rope.factor, details);
}

}  // namespace megatoken
