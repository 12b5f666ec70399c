// The program from outside: help, versions, errors and their exit status, and the commands that need no training.
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "cli_test_support.h"

namespace megatoken {
namespace {

using testing::Directory;
using testing::expect_error;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::Outcome;
using testing::run;

TEST(Program, Help) {
  const Outcome help = run("--help");
  EXPECT_EQ(help.status, 0);
  for (const char* command : {"train", "eval", "plan", "rehearse", "tokenize", "inspect", "export", "doctor"}) {
    EXPECT_THAT(help.out, HasSubstr(std::string("\n  ") + command)) << command;
    const Outcome one = run(std::string(command) + " --help");
    EXPECT_EQ(one.status, 0) << command;
    EXPECT_THAT(one.out, HasSubstr("Usage: ")) << command;
    EXPECT_EQ(one.err, "");
  }
  EXPECT_THAT(run("plan --help").out, HasSubstr("--find"));
  EXPECT_THAT(run("train --seed 3 --help").out, HasSubstr("--learning_rate 1e-5"));
}

TEST(Program, Version) {
  const Outcome version = run("--version");
  EXPECT_EQ(version.status, 0);
  EXPECT_THAT(version.out, MatchesRegex("megatoken [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST(Program, HelpKeys) {
  const Outcome keys = run("train --help-keys");
  EXPECT_EQ(keys.status, 0);
  for (const char* text : {"\n  learning_rate  (number, default 2e-05)", "Accepted, no effect", "attn_implementation",
                           "Refused", "use_peft (but false)"})
    EXPECT_THAT(keys.out, HasSubstr(text));
  EXPECT_EQ(run("eval --help_keys").out, keys.out);
}

TEST(Program, WrongCommandsExit2) {
  expect_error("", 2, "--help");
  expect_error("tokenise", 2, "tokenise: unknown command (there are train, eval, plan, rehearse, tokenize,");
  expect_error("train --learning_rte 3", 2, "did you mean --learning_rate?");
  expect_error("train a.yaml b.yaml", 2, "b.yaml");
  expect_error("train /nowhere/run.yaml", 2, "/nowhere/run.yaml: No such file or directory");
  expect_error("plan --find loss", 2, "--find");
  expect_error("tokenize --input x", 2, "--tokenizer");
  expect_error("inspect", 2, "PATH");
  expect_error("doctor now", 2, "now");
  expect_error("train --use_peft", 2, "--use_peft: true is refused");
}

TEST(Program, ConfigurationErrorsNameTheLine) {
  const Directory directory;
  const std::string path = directory.write("run.yaml", "seed: 1\nlearning_rate: fast\n");
  expect_error("train " + path, 2, path + ":2: learning_rate must be a number, not \"fast\"");
  expect_error("eval " + path, 2, ":2: learning_rate");
  expect_error("plan " + path, 2, ":2: learning_rate");
}

class TokenizerProgram : public ::testing::Test {
 protected:
  // Every byte is a token; two merges.
  TokenizerProgram() {
    nlohmann::json vocabulary = nlohmann::json::object();
    for (const char* token : {"a", "b", "c", "Ġ", "Ċ", "ab", "abc"}) vocabulary[token] = vocabulary.size();
    directory_.write(
        "tok/tokenizer.json",
        nlohmann::json(
            {{"version", "1.0"},
             {"added_tokens",
              {{{"id", 7},
                {"content", "<end>"},
                {"single_word", false},
                {"lstrip", false},
                {"rstrip", false},
                {"normalized", false},
                {"special", true}}}},
             {"normalizer", nullptr},
             {"pre_tokenizer",
              {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}}},
             {"post_processor", nullptr},
             {"decoder", {{"type", "ByteLevel"}}},
             {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"a b", "ab c"}}}}})
            .dump());
  }
  std::string tokenize(const std::string& text) {
    return "tokenize --tokenizer " + (directory_ / "tok") + " --input " + directory_.write("input.txt", text);
  }
  Directory directory_;
};

TEST_F(TokenizerProgram, Json) {
  const Outcome outcome = run(tokenize("abc ab<end>\n") + " --json");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(outcome.out), nlohmann::json({{"count", 5}, {"ids", {6, 3, 5, 7, 4}}}));
}

TEST_F(TokenizerProgram, EmptyInput) {
  EXPECT_EQ(nlohmann::json::parse(run(tokenize("") + " --json").out),
            nlohmann::json({{"count", 0}, {"ids", nlohmann::json::array()}}));
}

TEST_F(TokenizerProgram, People) {
  EXPECT_THAT(run(tokenize("abc ab")).out, HasSubstr("3 tokens from 6 bytes\nfirst: 6 \"abc\" 3 \" \" 5 \"ab\"\n"));
}

TEST_F(TokenizerProgram, LongOutputIsWhole) {
  std::string text;
  for (int i = 0; i < 200000; ++i) text += "abc a";
  const auto result = nlohmann::json::parse(run(tokenize(text) + " --json").out);
  EXPECT_EQ(result["ids"].size(), result["count"]);
}

TEST_F(TokenizerProgram, MissingFilesExit3) {
  expect_error("tokenize --tokenizer /nowhere --input " + directory_.write("x", "a"), 3, "/nowhere");
  expect_error("tokenize --tokenizer " + (directory_ / "tok") + " --input /nowhere", 3, "/nowhere");
}

constexpr const char* kConfig = R"({"model_type": "qwen3", "vocab_size": 8, "hidden_size": 4, "intermediate_size": 6,
  "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 2, "tie_word_embeddings": true,
  "torch_dtype": "float32"})";

TEST(Inspect, ModelWithoutWeights) {
  const Directory directory;
  directory.write("m/config.json", kConfig);
  const Outcome outcome = run("inspect " + (directory / "m"));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const char* part :
       {"qwen3: 2 layers, hidden 4, MLP 6, vocabulary 8", "2 query heads, 1 key-value heads, head dim 2, q/k norm",
        "default (theta 10000)", "embeddings tied", "weights     none", "tokenizer   none"})
    EXPECT_THAT(outcome.out, HasSubstr(part));
}

TEST(Inspect, GoldenModelHasTheCountedParameters) {
  const std::string golden = std::string(MEGATOKEN_TEST_DATA) + "/golden";
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(golden)) {
    if (!std::filesystem::exists(entry.path() / "model.safetensors") ||
        !std::filesystem::exists(entry.path() / "config.json"))
      continue;
    const Outcome outcome = run("inspect " + entry.path().string());
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const auto number_after = [&](const std::string& label, const std::string& before) {
      const auto line = outcome.out.find(label);
      const auto begin = outcome.out.find(before, line);
      return std::stoll(outcome.out.substr(begin + before.size()));
    };
    EXPECT_EQ(number_after("parameters", "  "), number_after("tensors  ", " of ")) << outcome.out;
    ++models;
  }
  EXPECT_GT(models, 0);
}

TEST(Inspect, Datasets) {
  const Directory directory;
  const std::string rows =
      directory.write("rows.jsonl", "{\"text\": \"abc\"}\n{\"prompt\": \"a\", \"completion\": \"bcd\"}\n");
  const Outcome outcome = run("inspect " + rows);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("rows        2, 1 with prompt and completion, 7 B of text"));
  EXPECT_THAT(outcome.out, HasSubstr("longest     4 B (" + rows + ":2)"));
  EXPECT_THAT(run("inspect " + directory.write("a.txt", "some words")).out, HasSubstr("rows        1, 10 B of text"));
  for (const char* name : {"s/train.txt", "s/test.txt", "s/README.md"}) directory.write(name, "text");
  const std::string splits = run("inspect " + (directory / "s")).out;
  EXPECT_THAT(splits, HasSubstr("splits      test, train; this is train"));
  EXPECT_THAT(splits, HasSubstr("not read    " + (directory / "s/README.md")));
}

TEST(Inspect, ErrorsExit3) {
  const Directory directory;
  expect_error("inspect /nowhere", 3, "/nowhere");
  expect_error("inspect /nowhere/rows.jsonl", 3, "dataset_name: /nowhere/rows.jsonl: no such file");
  ASSERT_EQ(::mkfifo((directory / "pipes.txt").c_str(), 0600), 0);
  expect_error("inspect '" + (directory / "pipe*.txt") + "'", 3, "pipes.txt: not a regular file");
  directory.write("m/config.json", R"({"model_type": "mamba"})");
  expect_error("inspect " + (directory / "m"), 3, "config.json: model_type: \"mamba\" is not supported");
  expect_error("inspect " + directory.write("w.safetensors", "short"), 3, "w.safetensors");
  expect_error("inspect " + directory.write("bad.jsonl", "{\"text\": 1}\n"), 3, "bad.jsonl:1");
}

TEST(Doctor, ChecksProductsAndLimits) {
  const Outcome outcome = run("doctor");
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  for (const char* part : {"processor: ", "memory: ", "ok       matrix products: error ", "open files: "})
    EXPECT_THAT(outcome.out, HasSubstr(part));
}

}  // namespace
}  // namespace megatoken
