#include "io/checkpoint_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "base/error.h"
#include "io/checkpoint_reader.h"
#include "io/model_files.h"
#include "io/safetensors_writer.h"
#include "io/temp_dir.h"

namespace megatoken {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::TempDir;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::set<std::string> entries(const std::string& dir) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir)) names.insert(entry.path().filename());
  return names;
}

// Weights and optimizer state whose every value is `step`.
void save(const std::string& output_dir, int64 step, bool with_state = true, int64 elements = 1000) {
  CheckpointDirWriter checkpoint(output_dir, step);
  const std::vector<float> values(static_cast<std::size_t>(elements), static_cast<float>(step));
  SafetensorsWriter weights(checkpoint.path(), {{"w", DType::f32, {elements}}});
  weights.write("w", 0, elements, values.data());
  weights.finish();
  if (with_state) {
    SafetensorsWriter optimizer(checkpoint.path(), {{"master.w", DType::f32, {elements}}}, {.stem = kOptimizerStem});
    optimizer.write("master.w", 0, elements, values.data());
    optimizer.finish();
    checkpoint.write_state({{"step", step}, {"sampler", {{"epoch", 1}}}, {"lr", 1.0 / 3}});
  }
  checkpoint.commit();
}

TEST(CheckpointDir, ComesBackAsSaved) {
  const TempDir dir;
  save(dir.file("out"), 7);
  EXPECT_EQ(entries(dir.file("out")), std::set<std::string>{"checkpoint-7"});
  const auto last = find_last_checkpoint(dir.file("out"));
  ASSERT_EQ(last, dir.file("out/checkpoint-7"));
  EXPECT_NO_THROW(require_resumable(*last));
  const nlohmann::json state = read_checkpoint_state(*last);
  EXPECT_EQ(state["lr"].get<double>(), 1.0 / 3);
  float value = 0;
  CheckpointReader::open(*last, kOptimizerStem).read("master.w", 999, 1, DType::f32, &value);
  EXPECT_EQ(value, 7.0f);
}

TEST(CheckpointDir, AnAbandonedOneLeavesNothing) {
  const TempDir dir;
  { CheckpointDirWriter checkpoint(dir.path(), 1); }
  EXPECT_TRUE(entries(dir.path()).empty());
  EXPECT_FALSE(find_last_checkpoint(dir.path()));
  EXPECT_FALSE(find_last_checkpoint(dir.file("missing")));
}

TEST(CheckpointDir, TheSameStepIsReplaced) {
  const TempDir dir;
  save(dir.path(), 3, true, 10);
  save(dir.path(), 3, true, 20);
  EXPECT_EQ(entries(dir.path()), std::set<std::string>{"checkpoint-3"});
  EXPECT_EQ(CheckpointReader::open(dir.file("checkpoint-3")).find("w")->elements, 20);
}

TEST(CheckpointDir, IncompleteOnesArePassedOver) {
  const TempDir dir;
  for (int64 step : {5, 10, 15, 20, 25}) save(dir.path(), step, step != 25);
  fs::resize_file(dir.file("checkpoint-20/model.safetensors"), 100);
  fs::remove(dir.file("checkpoint-15/optimizer.safetensors"));
  fs::create_directory(dir.file("checkpoint-30"));
  fs::create_directory(dir.file("checkpoint-x"));
  fs::create_directory(dir.file(".tmp-checkpoint-40"));
  dir.write("checkpoint-50", "a file");
  EXPECT_EQ(find_last_checkpoint(dir.path()), dir.file("checkpoint-10"));
  const auto refusal = [&](const std::string& name) {
    return message_of<FileError>([&] { require_resumable(dir.file(name)); });
  };
  EXPECT_THAT(refusal("checkpoint-15"), HasSubstr("lacks optimizer.safetensors"));
  EXPECT_THAT(refusal("checkpoint-20"), HasSubstr("model.safetensors has 100 bytes"));
  EXPECT_THAT(refusal("checkpoint-25"), HasSubstr("without training state"));
  EXPECT_THAT(refusal("checkpoint-30"), HasSubstr("no manifest.json"));
  EXPECT_THAT(refusal("checkpoint-99"), HasSubstr("no such checkpoint"));
  EXPECT_THAT(refusal("checkpoint-50"), HasSubstr("no such checkpoint"));
  dir.write("checkpoint-30/trainer_state.json", "{}");
  EXPECT_THAT(refusal("checkpoint-30"), HasSubstr("transformers' Trainer"));
  dir.write("checkpoint-30/manifest.json", "{\"format\": 2, \"files\": {}}");
  EXPECT_THAT(refusal("checkpoint-30"), HasSubstr("format 2"));
  dir.write("checkpoint-30/manifest.json", "{\"format\": 1, ");
  EXPECT_THAT(refusal("checkpoint-30"), HasSubstr("manifest.json: line 1"));
}

TEST(CheckpointDir, PruneKeepsTheNewestAndWhatIsNotOurs) {
  const TempDir dir;
  for (int64 step : {2, 10, 9, 100}) save(dir.path(), step);
  fs::create_directory(dir.file("checkpoint-1"));  // somebody else's
  prune_checkpoints(dir.path(), 0);
  EXPECT_EQ(entries(dir.path()).size(), 5u);
  prune_checkpoints(dir.path(), 2);
  EXPECT_THAT(entries(dir.path()), UnorderedElementsAre("checkpoint-1", "checkpoint-10", "checkpoint-100"));
}

TEST(CheckpointDir, LeftoversAreCleaned) {
  const TempDir dir;
  save(dir.path(), 1);
  save(dir.path(), 2);
  fs::create_directory(dir.file(".tmp-checkpoint-3"));
  fs::create_directory(dir.file(".trash-checkpoint-0"));
  fs::create_directory(dir.file(".tmp-model"));
  dir.write(".report.html.tmp-12-3", "x");
  dir.write(".hidden", "the user's");
  dir.write(".tmp-notes", "the user's");
  dir.write(".x.tmp-1-2-3", "the user's");
  fs::rename(dir.file("checkpoint-1"), dir.file(".old-checkpoint-1"));  // cut off while being replaced
  fs::copy(dir.file("checkpoint-2"), dir.file(".old-checkpoint-2"));    // cut off afterwards
  clean_leftovers(dir.path());
  EXPECT_THAT(entries(dir.path()),
              UnorderedElementsAre("checkpoint-1", "checkpoint-2", ".hidden", ".tmp-notes", ".x.tmp-1-2-3"));
  EXPECT_NO_THROW(require_resumable(dir.file("checkpoint-1")));
  clean_leftovers(dir.file("missing"));
}

// Kill -9 at forty different moments of a loop of saves and prunes: a complete checkpoint is always there.
TEST(CheckpointDir, SurvivesBeingKilledAtAnyMoment) {
  const TempDir dir;
  save(dir.path(), 1);
  for (int round = 0; round < 40; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (int64 step = 2; step < 100000; ++step) {
        save(dir.path(), 1 + step % 5, true, 50'000);
        prune_checkpoints(dir.path(), 2);
      }
      ::_exit(0);
    }
    ::usleep(static_cast<useconds_t>(2000 + round * 1700));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    for (int pass = 0; pass < 2; ++pass) {
      const auto last = find_last_checkpoint(dir.path());
      ASSERT_TRUE(last) << "round " << round;
      const auto step = static_cast<float>(read_checkpoint_state(*last)["step"].get<int64>());
      const CheckpointReader weights = CheckpointReader::open(*last);
      const int64 n = weights.find("w")->elements;
      std::vector<float> values(static_cast<std::size_t>(n));
      weights.read("w", 0, n, DType::f32, values.data());
      ASSERT_TRUE(std::all_of(values.begin(), values.end(), [&](float v) { return v == step; }));
      clean_leftovers(dir.path());
    }
    for (const std::string& name : entries(dir.path())) ASSERT_TRUE(name.starts_with("checkpoint-")) << name;
  }
}

TEST(CheckpointDir, AFullDiskLeavesTheLastOne) {
  const TempDir dir;
  save(dir.path(), 1);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 16, 1 << 16};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::string message = message_of<TrainError>([&] { save(dir.path(), 2, true, 1'000'000); });
    ::_exit(message.find("model.safetensors") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(entries(dir.path()), std::set<std::string>{"checkpoint-1"});
  EXPECT_EQ(find_last_checkpoint(dir.path()), dir.file("checkpoint-1"));
}

TEST(CheckpointDir, AnUnwritablePlaceIsNamed) {
  EXPECT_THAT(message_of<TrainError>([] { CheckpointDirWriter("/proc/none", 1); }), HasSubstr("/proc/none"));
}

TEST(ModelFiles, CopiesTokenizerFilesByteForByte) {
  const TempDir dir;
  const std::string bytes("{\r\n \"a\": 1}\0x", 14);
  dir.write("blob", bytes);
  fs::create_directories(dir.file("from"));
  fs::create_directories(dir.file("to"));
  fs::create_symlink("../blob", dir.file("from/tokenizer.json"));
  dir.write("from/generation_config.json", "{}");
  dir.write("from/additional_chat_templates/tool.jinja", "t");
  dir.write("from/config.json", "not copied");
  EXPECT_THAT(copy_tokenizer_files(dir.file("from"), dir.file("to")),
              UnorderedElementsAre("tokenizer.json", "generation_config.json", "additional_chat_templates/tool.jinja"));
  EXPECT_EQ(TempDir::read(dir.file("to/tokenizer.json")), bytes);
  EXPECT_FALSE(fs::is_symlink(dir.file("to/tokenizer.json")));
  EXPECT_FALSE(fs::exists(dir.file("to/config.json")));
}

TEST(ModelFiles, PublishReplacesTheOldModel) {
  const TempDir dir;
  for (const char* name :
       {"model-00001-of-00003.safetensors", "model.safetensors.index.json", "config.json", "trainer_log.jsonl"})
    dir.write(name, "old");
  for (const char* name : {"model.safetensors", "config.json", "tokenizer.json"})
    dir.write(std::string(kStagingName) + "/" + name, "new");
  publish_model(dir.file(kStagingName), dir.path());
  EXPECT_THAT(entries(dir.path()),
              UnorderedElementsAre("model.safetensors", "config.json", "tokenizer.json", "trainer_log.jsonl"));
  EXPECT_EQ(TempDir::read(dir.file("config.json")), "new");
  EXPECT_EQ(TempDir::read(dir.file("trainer_log.jsonl")), "old");
}

// Killed while models of one and of three shards replace each other: what opens is one of them, and the next start
// leaves a whole one.
TEST(ModelFiles, PublishSurvivesBeingKilled) {
  const TempDir dir;
  const std::string staging = dir.file(kStagingName);
  const auto publish = [&](float value) {
    fs::create_directories(staging);
    SafetensorsWriter writer(staging, {{"a", DType::f32, {1}}, {"b", DType::f32, {1}}, {"c", DType::f32, {1}}},
                             {.max_shard_bytes = static_cast<int>(value) % 2 ? 4 : 100});
    for (const char* name : {"a", "b", "c"}) writer.write(name, 0, 1, &value);
    writer.finish();
    publish_model(staging, dir.path());
  };
  const auto expect_one_model = [&] {
    const CheckpointReader reader = CheckpointReader::open(dir.path());
    std::set<float> values;
    for (const std::string& name : reader.names()) {
      float value = 0;
      reader.read(name, 0, 1, DType::f32, &value);
      values.insert(value);
    }
    EXPECT_EQ(reader.names().size(), 3u);
    EXPECT_EQ(values.size(), 1u);
  };
  publish(1);
  for (int round = 0; round < 30; ++round) {
    const pid_t child = ::fork();
    if (child == 0)
      for (float value = 2;; value += 1) publish(value);
    ::usleep(static_cast<useconds_t>(1000 + round * 900));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    const bool whole =
        fs::exists(dir.file("model.safetensors")) || fs::exists(dir.file("model.safetensors.index.json"));
    if (whole) expect_one_model();
    clean_leftovers(dir.path());
    expect_one_model();
    EXPECT_FALSE(fs::exists(staging));
  }
}

}  // namespace
}  // namespace megatoken
