// Datasets from outside: what a run says of its data, what it refuses, and its cache.
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "cli_test_support.h"

namespace megatoken {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::Directory;
using ::testing::HasSubstr;
using testing::Outcome;

constexpr const char* kConfig = R"({"model_type": "qwen3", "vocab_size": 257, "hidden_size": 8, "intermediate_size": 8,
  "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "tie_word_embeddings": true,
  "rms_norm_eps": 1e-6, "max_position_embeddings": 64, "hidden_act": "silu", "rope_theta": 10000.0, "attention_bias": false})";

// A tiny model that has a token for every byte, trained one step on the CPU.
class TrainData : public ::testing::Test {
 protected:
  TrainData() {
    directory_.write("m/config.json", kConfig);
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
      fs::copy_file(std::string(MEGATOKEN_TEST_DATA "/../configs/demo/") + name,
                    directory_ / ("m/" + std::string(name)));
  }
  Outcome train(const std::string& dataset, const std::string& more = "--max_length 64") const {
    return testing::run(
        "train --model_name_or_path " + (directory_ / "m") + " --dataset_name '" + dataset +
        "' --init_from_config --use_cpu --dtype float32 --max_steps 1 --save_strategy no --output_dir " +
        (directory_ / "out") + " " + more);
  }
  void expect_fault(const std::string& dataset, const std::string& part, int status = 3,
                    const std::string& more = "--max_length 64") const {
    const Outcome outcome = train(dataset, more);
    EXPECT_EQ(outcome.status, status) << dataset;
    EXPECT_THAT(outcome.err, AllOf(::testing::StartsWith("error: "), HasSubstr(part))) << dataset;
    EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
    EXPECT_FALSE(fs::exists(directory_ / "out/model.safetensors"));
  }
  nlohmann::json first_log_line() const {
    std::ifstream log(directory_ / "out/trainer_log.jsonl");
    std::string line;
    std::getline(log, line);
    return nlohmann::json::parse(line);
  }
  Directory directory_;
};

TEST_F(TrainData, JoinedTextsAreCounted) {
  const Outcome outcome = train(directory_.write("t.txt", "one\n\ntwo\nthree\n"),
                                "--sample_by line --long_rows concatenate --max_length 5");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("data: 3 rows, 14 tokens, 11 targets; joined 3 texts into 3 rows"));
  EXPECT_THAT(outcome.out, HasSubstr("dropped 1 rows and 1 tokens (empty: 1)"));
  const auto line = first_log_line();
  EXPECT_EQ(line["joined_texts"], 3);
  EXPECT_EQ(line["joined_rows"], 3);
  EXPECT_EQ(line["dropped_rows"], 1);
}

TEST_F(TrainData, WhatIsReplacedCutOrPassedOverIsSaid) {
  directory_.write("d/train.txt", "bad \xff\xfe text");
  directory_.write("d/test.txt", "held out, and longer than eight");
  directory_.write("d/notes.md", "notes");
  const Outcome outcome = train(directory_ / "d", "--max_length 8 --eval_strategy steps --eval_steps 1");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("1 files of other kinds or splits are not read: " + (directory_ / "d/notes.md")));
  EXPECT_THAT(outcome.out, HasSubstr("replaced 2 invalid UTF-8 sequences by U+FFFD"));
  EXPECT_THAT(outcome.out, HasSubstr("evaluation data: 1 rows, 8 tokens, 7 targets; truncated 1 rows at max_length"));
  EXPECT_EQ(first_log_line()["invalid_utf8"], 2);
}

TEST_F(TrainData, BadFilesAreNamed) {
  const auto rows = [&](const std::string& text) { return directory_.write("r.jsonl", text); };
  expect_fault(rows("{\"text\": \"a\"}\n{\"text\": 3}\n"), "r.jsonl:2: \"text\" must be a text, not a number");
  expect_fault(rows("{\"text\": \"a\"}\n{\"text\": \"ab"), "r.jsonl:2: ");
  expect_fault(rows("{\"input_ids\": [1, 257]}\n"), "r.jsonl:1: token id 257 is beyond the model's vocabulary of 257");
  expect_fault(rows("{\"input_ids\": [1, 99999999999999999999]}\n"), "r.jsonl:1: \"input_ids\"");
  expect_fault(rows("{\"text\": \"a\", \"text\": \"b\"}\n"), "r.jsonl:1: key \"text\" stands twice");
  expect_fault(rows("{\"text\": \"a\xff\"}\n"), "ill-formed UTF-8 byte; last read: '\"a\\xff'");
  expect_fault(rows(""), "r.jsonl: no rows");
  expect_fault(directory_.write("e.txt", ""), "e.txt: nothing is left to train on");
  expect_fault(directory_ / "absent.txt", "absent.txt: no such file");
  fs::create_directory(directory_ / "nothing");
  expect_fault(directory_ / "nothing", "no .txt, .jsonl or .json file in this directory");
  fs::create_directory(directory_ / "links");
  fs::create_symlink("/nowhere", directory_ / "links/b.txt");
  expect_fault(directory_ / "links", "links/b.txt: No such file");
  ASSERT_EQ(::mkfifo((directory_ / "p.txt").c_str(), 0600), 0);
  expect_fault(directory_ / "p.txt", "p.txt: not a regular file");
}

TEST_F(TrainData, ALargeDatasetIsCachedAndADamagedEntryMadeAnew) {
  ::setenv("MEGATOKEN_CACHE", (directory_ / "cache").c_str(), 1);
  const std::string book = directory_.write("book.txt", std::string(1500000, 'x'));
  const std::string more = "--max_length 64 --long_rows split";
  const Outcome first = train(book, more);
  ASSERT_EQ(first.status, 0) << first.err;
  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(directory_ / "cache/datasets")) entries.push_back(entry.path());
  ASSERT_EQ(entries.size(), 1u);
  const Outcome second = train(book, more);
  EXPECT_EQ(second.err, "");
  std::ofstream(entries[0], std::ios::binary) << "damaged";
  const Outcome third = train(book, more);
  EXPECT_THAT(third.err, HasSubstr("this cached dataset is made anew"));
  ::unsetenv("MEGATOKEN_CACHE");
  const auto data_line = [](const Outcome& outcome) {
    const auto at = outcome.out.find("\ndata: ");
    return outcome.out.substr(at, outcome.out.find('\n', at + 1) - at);
  };
  EXPECT_THAT(data_line(first), HasSubstr("23438 rows"));
  for (const Outcome* outcome : {&second, &third}) {
    EXPECT_EQ(outcome->status, 0);
    EXPECT_EQ(data_line(*outcome), data_line(first));
  }
}

}  // namespace
}  // namespace megatoken
