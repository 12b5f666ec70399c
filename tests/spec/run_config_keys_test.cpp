// The key table is complete and consistent.
#include "spec/run_config_keys.h"

#include <set>

#include "spec/config_scalar.h"
#include "spec/lr_schedule_keys.h"
#include "spec_test_support.h"

namespace megatoken {
namespace {

// Every key of TRL's SFT script and of accelerate's configuration files (tools/list_trl_keys.py), of TRL 0 with
// transformers 4 and of TRL 1 with transformers 5, has a row.
class KnownKeys : public ::testing::TestWithParam<const char*> {};

TEST_P(KnownKeys, AllHaveARow) {
  const auto lists = testing::read_json(GetParam());
  ASSERT_GT(lists["SFTConfig"].size(), 120u);
  int count = 0;
  for (const auto& [section, keys] : lists.items()) {
    if (!keys.is_object()) continue;
    const bool inside = section.ends_with("_config");
    for (const auto& [key, value] : keys.items()) {
      ++count;
      EXPECT_NE(find_key(inside ? section + "." + key : key), nullptr) << section << ": " << key;
    }
  }
  EXPECT_GT(count, 200);
}

// What we take as defaults is what TRL does, but where this program decides for itself.
TEST_P(KnownKeys, DefaultsAreTrls) {
  const std::set<std::string> ours = {"dtype", "report_to", "output_dir", "mixed_precision",    "warmup_ratio",
                                      "optim", "loss_type", "bf16",       "pad_to_multiple_of", "num_processes"};
  const auto lists = testing::read_json(GetParam());
  for (const char* section : {"SFTConfig", "ModelConfig", "ScriptArguments"}) {
    if (!lists.contains(section)) continue;
    for (const auto& [key, value] : lists[section].items()) {
      const KeyInfo* row = find_key(key);
      if (row == nullptr || row->use != KeyClass::honoured || row->name != key || ours.contains(key)) continue;
      if (row->type == ValueType::container || row->type == ValueType::map) continue;
      const auto theirs = value.is_string() ? nlohmann::json(resolve_scalar(value.get<std::string>())) : value;
      EXPECT_EQ(nlohmann::json(resolve_scalar(row->default_value)), theirs) << key;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Spec, KnownKeys, ::testing::Values("trl_0_keys.json", "trl_1_keys.json"),
                         [](const auto& parameter) { return std::string(parameter.param).substr(0, 5); });

TEST(RunConfigKeys, RowsAreWellFormed) {
  std::set<std::string_view> names;
  for (const KeyInfo& row : run_config_keys()) {
    SCOPED_TRACE(row.name);
    EXPECT_TRUE(names.insert(row.name).second);
    EXPECT_EQ(find_key(row.name), &row);
    EXPECT_EQ(canonical_key(row.name), row.name);
    EXPECT_EQ(row.name.find('-'), std::string_view::npos);
    const bool honoured = row.use == KeyClass::honoured;
    EXPECT_EQ(honoured && row.type != ValueType::container, row.set != nullptr);
    EXPECT_TRUE(honoured || !row.help.empty());
    EXPECT_TRUE(row.use == KeyClass::refused || row.harmless.empty());
  }
}

// A default written in the table, put in as a value, is the default of RunConfig.
TEST(RunConfigKeys, WrittenDefaultsAreTheDefaults) {
  for (const KeyInfo& row : run_config_keys()) {
    if (row.use != KeyClass::honoured || row.default_value.empty()) continue;
    SCOPED_TRACE(row.name);
    RunConfig config = testing::parse("", {{std::string(row.name), {std::string(row.default_value)}}});
    EXPECT_THAT(config.notices, ::testing::IsEmpty());
    config.given.clear();
    config.data.max_length_given = config.data.long_rows_given = false;
    if (row.name == "parallelism_config_cp_size") config.parallel.cp.reset();
    if (row.name == "parallelism_config_dp_replicate_size") config.parallel.dp_replicate.reset();
    EXPECT_EQ(config, testing::parse(""));
  }
}

TEST(RunConfigKeys, HarmlessValuesAreJson) {
  for (const KeyInfo& row : run_config_keys()) {
    std::string list(row.harmless);
    while (!list.empty()) {
      const auto bar = list.find('|');
      EXPECT_NO_THROW(nlohmann::json::parse(list.substr(0, bar))) << row.name;
      list = bar == std::string::npos ? "" : list.substr(bar + 1);
    }
  }
}

TEST(RunConfigKeys, NamesAsUsersWriteThem) {
  EXPECT_EQ(canonical_key("per-device-train-batch-size"), "per_device_train_batch_size");
  EXPECT_EQ(canonical_key("fsdp_config.offload-params"), "fsdp_offload_params");
  EXPECT_EQ(canonical_key("fsdp_config.fsdp_offload_params"), "fsdp_offload_params");
  EXPECT_EQ(canonical_key("parallelism_config.cp_size"), "parallelism_config_cp_size");
  EXPECT_EQ(canonical_key("activation_checkpointing_kwargs.offload"), "gradient_checkpointing_kwargs.offload");
  EXPECT_EQ(canonical_key("lr_scheduler_kwargs.num_cycles"), "lr_scheduler_kwargs");
  EXPECT_EQ(canonical_key("model_init_kwargs.rope_scaling.factor"), "model_init_kwargs.rope_scaling");
  EXPECT_EQ(find_key("seed.x"), nullptr);
  EXPECT_EQ(find_key("."), nullptr);
  EXPECT_EQ(find_key(""), nullptr);
  EXPECT_EQ(find_key("fsdp_config."), nullptr);
  EXPECT_EQ(nearest_key("bf_16"), "bf16");
  EXPECT_EQ(nearest_key("q"), "");
}

}  // namespace
}  // namespace megatoken
