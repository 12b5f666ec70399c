#include "spec/rope.h"

#include <bit>
#include <cmath>

#include "spec_test_support.h"

namespace megatoken {
namespace {

using ::testing::HasSubstr;
using testing::load_model;
using testing::refusal;
using testing::small_config;

// Steps between two positive floats in the order of their bits.
int steps_apart(float a, float b) { return std::abs(std::bit_cast<int>(a) - std::bit_cast<int>(b)); }

// transformers' own numbers (tools/golden_rope.py). torch's vector pow is within one unit in the last place of libm's.
TEST(Rope, FrequenciesEqualTransformers) {
  const auto golden = testing::read_json("rope_golden.json");
  ASSERT_GE(golden["cases"].size(), 25u);
  for (const auto& item : golden["cases"]) {
    SCOPED_TRACE(item["name"]);
    const ModelSpec model = load_model(item["config"]);
    for (const auto& result : item["results"]) {
      const RopeFrequencies ours = rope_inverse_frequencies(model.rope, result["length"].get<int64>());
      const auto theirs = result["inv_freq"].get<std::vector<float>>();
      ASSERT_EQ(ours.inv_freq.size(), theirs.size());
      for (std::size_t i = 0; i < theirs.size(); ++i) EXPECT_LE(steps_apart(ours.inv_freq[i], theirs[i]), 1) << i;
      EXPECT_EQ(ours.attention_factor, result["attention_factor"].get<float>());
    }
  }
}

TEST(Rope, YarnVector) {
  const auto model = load_model(small_config(
      "qwen3", {{"head_dim", 128},
                {"rope_theta", 1000000},
                {"rope_scaling", {{"type", "yarn"}, {"factor", 32}, {"original_max_position_embeddings", 32768}}}}));
  const RopeFrequencies rope = rope_inverse_frequencies(model.rope, 0);
  EXPECT_NEAR(rope.attention_factor, 1.3465736, 1e-7);
  EXPECT_NEAR(rope.inv_freq[24] / 5.3029614e-3, 1, 2e-7);
  EXPECT_NEAR(rope.inv_freq[31] / 6.7521613e-4, 1, 2e-7);
  EXPECT_NEAR(rope.inv_freq[40] / 5.5571231e-6, 1, 2e-7);
  EXPECT_NEAR(rope.inv_freq[63] / 3.8779305e-8, 1, 2e-7);
}

TEST(Rope, OnlyDynamicDependsOnTheLength) {
  for (const char* type : {"linear", "dynamic", "yarn"}) {
    const auto model = load_model(small_config("llama", {{"rope_scaling", {{"rope_type", type}, {"factor", 4.0}}}}));
    const bool grows =
        rope_inverse_frequencies(model.rope, 512).inv_freq != rope_inverse_frequencies(model.rope, 513).inv_freq;
    EXPECT_EQ(grows, std::string(type) == "dynamic");
    EXPECT_EQ(depends_on_length(model.rope), grows);
    EXPECT_EQ(rope_inverse_frequencies(model.rope, 0).inv_freq, rope_inverse_frequencies(model.rope, 512).inv_freq);
  }
}

TEST(Rope, RefusedByName) {
  const auto with = [](const nlohmann::json& rope) { return refusal(small_config("qwen3", {{"rope_scaling", rope}})); };
  for (const char* type : {"longrope", "su", "mrope", "proportional", "axial", "ntk", ""})
    EXPECT_THAT(with({{"rope_type", type}, {"factor", 2}}),
                HasSubstr(std::string("rope_type: ") + type + " is not supported"));
  EXPECT_THAT(with({{"type", "yarn"}}), HasSubstr("config.json: rope_scaling: rope type yarn needs factor"));
  EXPECT_THAT(with({{"type", "linear"}, {"factor", -1}}), HasSubstr("factor must be positive"));
  EXPECT_THAT(with({{"type", "linear"}, {"factor", "8"}}), HasSubstr("factor must be a number"));
  EXPECT_THAT(with({{"type", "default"}, {"mrope_section", {16, 24, 24}}}), HasSubstr("mrope_section: [16,24,24]"));
  EXPECT_THAT(with({{"type", "linear"}, {"factor", 2}, {"partial_rotary_factor", 0.5}}),
              HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(with({{"type", "linear"}, {"factor", 2}, {"strange", 1}}), HasSubstr("strange: 1 is not supported"));
  EXPECT_THAT(with({{"rope_type", 3}}), HasSubstr("rope_type must be a string"));
  EXPECT_THAT(with("yarn"), HasSubstr("rope_scaling must be a dictionary"));
  EXPECT_THAT(with({{"full_attention", {{"rope_type", "default"}}}}), HasSubstr("full_attention"));
  EXPECT_THAT(with({{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}, {"high_freq_factor", 1}}),
              HasSubstr("high_freq_factor 1 must be greater than low_freq_factor 4"));
  EXPECT_THAT(with({{"rope_type", "yarn"}, {"factor", 8}, {"original_max_position_embeddings", 0}}),
              HasSubstr("original_max_position_embeddings must be a positive whole number"));
  EXPECT_THAT(with({{"rope_type", "yarn"}, {"factor", 8}, {"truncate", 1}}),
              HasSubstr("truncate must be true or false"));
  EXPECT_THAT(refusal(small_config("qwen3", {{"rope_theta", "1e6"}})), HasSubstr("rope_theta must be a number"));
  EXPECT_THAT(refusal(small_config("qwen3", {{"rope_theta", 0}})), HasSubstr("rope_theta must be greater than 1"));
}

TEST(Rope, OverrideKeepsThetaAndSavesWhatWasTrained) {
  ModelSpec model = load_model(small_config("qwen3", {{"head_dim", 128}, {"rope_theta", 1000000}}));
  override_rope(model,
                {"rope_parameters", R"({"rope_type": "yarn", "factor": 32, "original_max_position_embeddings": 32768})",
                 std::nullopt});
  EXPECT_EQ(model.rope.kind, RopeKind::yarn);
  EXPECT_EQ(model.rope.theta, 1000000);
  EXPECT_EQ(model.max_position_embeddings, 32 * 32768);
  const ModelSpec saved = ModelSpec::from_config_json(config_json_to_save(model, DType::bf16), "saved");
  EXPECT_EQ(saved.rope, model.rope);
  EXPECT_EQ(saved.stored_dtype, DType::bf16);
  EXPECT_EQ(saved.max_position_embeddings, model.max_position_embeddings);
}

TEST(Rope, OverrideReplacesTheWholeRope) {
  ModelSpec model = load_model(small_config("llama", {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}));
  override_rope(model, {"rope_scaling", R"({"rope_type": "default", "rope_theta": 5000})", std::nullopt});
  EXPECT_EQ(model.rope.kind, RopeKind::none);
  EXPECT_EQ(model.rope.theta, 5000);
  const auto saved = nlohmann::json::parse(config_json_to_save(model, DType::f32));
  EXPECT_TRUE(saved["rope_scaling"].is_null());
  EXPECT_EQ(saved["rope_theta"], 5000);
}

TEST(Rope, OverrideIsRefusedAsConfiguration) {
  ModelSpec model = load_model(small_config("llama"));
  const auto message = testing::message_of(ExitCode::config, [&] {
    override_rope(model, {"rope_parameters", R"({"rope_type": "longrope"})", std::nullopt});
  });
  EXPECT_THAT(message, HasSubstr("rope_parameters: rope_type: longrope is not supported"));
}

// Every golden configuration, saved and read again, means the same.
TEST(Rope, SavedConfigurationsReadBack) {
  const auto golden = testing::read_json("rope_golden.json");
  for (const auto& item : golden["cases"]) {
    SCOPED_TRACE(item["name"]);
    ModelSpec model = load_model(item["config"]);
    EXPECT_EQ(ModelSpec::from_config_json(config_json_to_save(model, DType::bf16), "saved").rope, model.rope);
    model.rope_overridden = true;
    EXPECT_EQ(ModelSpec::from_config_json(config_json_to_save(model, DType::bf16), "saved").rope, model.rope);
  }
}

TEST(Rope, Describe) {
  const auto model = load_model(small_config(
      "llama", {{"rope_scaling", {{"type", "yarn"}, {"factor", 32}, {"original_max_position_embeddings", 4096}}}}));
  EXPECT_EQ(describe(model.rope), "yarn x32 (theta 10000, original 4096, attention factor 1.34657)");
}

}  // namespace
}  // namespace megatoken
