#include "cli/arguments.h"

#include <gmock/gmock.h>

#include "base/error.h"

namespace megatoken {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

SplitArguments split(const std::vector<std::string>& arguments) {
  return split_arguments(arguments, {"json", "find", "help"});
}

TEST(Arguments, ValuesByTheTypeOfTheKey) {
  const SplitArguments result = split({"run.yaml", "--learning-rate", "1e-4", "--max_steps", "-1", "--output_dir=a=b",
                                       "--bf16", "--report_to", "none", "tensorboard", "--gradient_checkpointing",
                                       "False", "--lr_scheduler_kwargs", R"({"num_cycles": 2})", "--max_length="});
  EXPECT_THAT(result.others, ElementsAre("run.yaml"));
  ASSERT_EQ(result.overrides.size(), 8u);
  EXPECT_EQ(result.overrides[0].key, "learning-rate");
  EXPECT_THAT(result.overrides[0].values, ElementsAre("1e-4"));
  EXPECT_THAT(result.overrides[1].values, ElementsAre("-1"));
  EXPECT_THAT(result.overrides[2].values, ElementsAre("a=b"));
  EXPECT_THAT(result.overrides[3].values, IsEmpty());
  EXPECT_THAT(result.overrides[4].values, ElementsAre("none", "tensorboard"));
  EXPECT_THAT(result.overrides[5].values, ElementsAre("False"));
  EXPECT_THAT(result.overrides[6].values, ElementsAre(R"({"num_cycles": 2})"));
  EXPECT_THAT(result.overrides[7].values, ElementsAre(""));
}

TEST(Arguments, AConfigurationAfterAFlagIsNotItsValue) {
  for (const char* key : {"--bf16", "--use_peft", "--report_to"}) {
    const SplitArguments result = split({key, "run.yaml"});
    EXPECT_THAT(result.others, ElementsAre("run.yaml")) << key;
    EXPECT_THAT(result.overrides.at(0).values, IsEmpty()) << key;
  }
}

TEST(Arguments, AcceptedKeysMayHaveSeveralValues) {
  const SplitArguments result = split({"--lora_target_modules", "q_proj", "k_proj", "run.yaml"});
  EXPECT_THAT(result.overrides.at(0).values, ElementsAre("q_proj", "k_proj"));
  EXPECT_THAT(result.others, ElementsAre("run.yaml"));
}

TEST(Arguments, NoTurnsAFlagOff) {
  const SplitArguments result = split({"--no_bf16", "--no-gradient-checkpointing", "--no_packing"});
  ASSERT_EQ(result.overrides.size(), 3u);
  EXPECT_EQ(result.overrides[1].key, "gradient_checkpointing");
  for (const KeyOverride& item : result.overrides) EXPECT_THAT(item.values, ElementsAre("false"));
  EXPECT_THROW(split({"--no_learning_rate"}), ConfigError);
  EXPECT_EQ(split({"--no_cuda"}).overrides.at(0).key, "no_cuda");
}

TEST(Arguments, OwnOptionsAreLeftAlone) {
  const SplitArguments result = split({"--json", "--seed", "3", "--find", "max_length", "-h"});
  EXPECT_THAT(result.others, ElementsAre("--json", "--find", "max_length", "-h"));
  EXPECT_EQ(result.overrides.size(), 1u);
}

TEST(Arguments, DottedKeys) {
  const SplitArguments result =
      split({"--lr_scheduler_kwargs.num_cycles", "2", "--fsdp_config.offload-params", "true"});
  EXPECT_EQ(result.overrides.at(0).key, "lr_scheduler_kwargs.num_cycles");
  EXPECT_THAT(result.overrides.at(1).values, ElementsAre("true"));
}

TEST(Arguments, UnknownOptionsSuggestTheNearest) {
  try {
    split({"--learning_rte", "3"});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--learning_rte: unknown option; did you mean --learning_rate?"));
  }
  EXPECT_THROW(split({"--=3"}), ConfigError);
  EXPECT_THROW(split({"---"}), ConfigError);
  EXPECT_THAT(split({"--"}).others, ElementsAre("--"));
}

}  // namespace
}  // namespace megatoken
