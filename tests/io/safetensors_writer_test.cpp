#include "io/safetensors_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "base/error.h"
#include "io/checkpoint_reader.h"
#include "io/temp_dir.h"

namespace megatoken {
namespace {

using test::message_of;
using test::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::vector<std::string> entries(const std::string& dir) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) names.push_back(entry.path().filename());
  return names;
}

std::vector<TensorDeclaration> three() {
  return {{"a", DType::f32, {2, 3}}, {"b", DType::bf16, {4}}, {"c", DType::f32, {}}};
}

void fill(SafetensorsWriter& writer) {
  const std::vector<float> a{1, 2, 3, 4, 5, 6};
  const std::vector<std::uint16_t> b{1, 2, 3, 4};
  const float c = 9;
  writer.write("c", 0, 1, &c);
  writer.write("a", 4, 2, a.data() + 4);
  writer.write("a", 0, 4, a.data());
  writer.write("b", 0, 4, b.data());
}

TEST(SafetensorsWriter, WritesOneFileInAnyOrder) {
  const TempDir dir;
  SafetensorsWriter writer(dir.path(), three());
  fill(writer);
  writer.finish();
  EXPECT_THAT(entries(dir.path()), ElementsAre("model.safetensors"));
  EXPECT_THAT(writer.file_names(), ElementsAre("model.safetensors"));
  // The bytes themselves: an aligned header in the declared order, then the data.
  const std::string content = TempDir::read(dir.file("model.safetensors"));
  std::uint64_t length = 0;
  std::memcpy(&length, content.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_THAT(content.substr(8, length),
              HasSubstr(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                        R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},)"
                        R"("c":{"dtype":"F32","shape":[],"data_offsets":[32,36]}})"));
  EXPECT_EQ(content.size(), 8 + length + 36);
  const CheckpointReader reader = CheckpointReader::open(dir.path());
  std::vector<float> a(6);
  reader.read("a", 0, 6, DType::f32, a.data());
  EXPECT_EQ(a, (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST(SafetensorsWriter, ShardsAsTransformersDoes) {
  const TempDir dir;
  std::vector<TensorDeclaration> tensors;
  // Sizes 24, 8, 80 (alone: above the limit), 16, 4 with a limit of 40: [24+8], [80], then 16 would pass: [24 8], ...
  for (const auto& [name, n] :
       std::vector<std::pair<std::string, int64>>{{"a", 6}, {"b", 2}, {"big", 20}, {"c", 4}, {"d", 1}})
    tensors.push_back({name, DType::f32, {n}});
  SafetensorsWriter writer(dir.path(), tensors, {.max_shard_bytes = 40});
  const std::vector<float> zeros(20);
  for (const auto& t : tensors) writer.write(t.name, 0, t.shape[0], zeros.data());
  writer.finish();
  EXPECT_EQ(TempDir::read(dir.file("model.safetensors.index.json")), R"({
  "metadata": {
    "total_parameters": 33,
    "total_size": 132
  },
  "weight_map": {
    "a": "model-00002-of-00003.safetensors",
    "b": "model-00002-of-00003.safetensors",
    "big": "model-00001-of-00003.safetensors",
    "c": "model-00003-of-00003.safetensors",
    "d": "model-00003-of-00003.safetensors"
  }
}
)");
  EXPECT_EQ(entries(dir.path()).size(), 4u);
  EXPECT_EQ(CheckpointReader::open(dir.path()).names().size(), 5u);
}

TEST(SafetensorsWriter, LeavesNothingWithoutFinish) {
  const TempDir dir;
  {
    SafetensorsWriter writer(dir.path(), three());
    const float c = 1;
    writer.write("c", 0, 1, &c);
    EXPECT_THAT(message_of<InternalError>([&] { writer.finish(); }), HasSubstr("tensor a: 0 of 6"));
    EXPECT_FALSE(std::filesystem::exists(dir.file("model.safetensors")));
  }
  EXPECT_TRUE(entries(dir.path()).empty());
}

TEST(SafetensorsWriter, RefusesWhatWasNotDeclared) {
  const TempDir dir;
  SafetensorsWriter writer(dir.path(), three());
  const float c[8] = {};
  EXPECT_THROW(writer.write("x", 0, 1, c), InternalError);
  EXPECT_THROW(writer.write("c", 0, 2, c), InternalError);
  EXPECT_THROW(writer.write("a", 5, 2, c), InternalError);
  EXPECT_THROW(SafetensorsWriter(dir.path(), {{"a", DType::f32, {-1}}}), InternalError);
  EXPECT_THROW(SafetensorsWriter(dir.path(), {{"a", DType::f32, {1}}, {"a", DType::f32, {1}}}), InternalError);
}

TEST(SafetensorsWriter, WritesFromThreads) {
  const TempDir dir;
  constexpr int64 kCount = 100'000;
  SafetensorsWriter writer(dir.path(), {{"t", DType::f32, {kCount}}});
  std::vector<std::thread> threads;
  for (int r = 0; r < 4; ++r)
    threads.emplace_back([&, r] {
      const std::vector<float> mine(kCount / 4, static_cast<float>(r));
      writer.write("t", r * kCount / 4, kCount / 4, mine.data());
    });
  for (auto& thread : threads) thread.join();
  writer.finish();
  std::vector<float> out(kCount);
  CheckpointReader::open(dir.path()).read("t", 0, kCount, DType::f32, out.data());
  for (int64 i = 0; i < kCount; ++i) ASSERT_EQ(out[i], static_cast<float>(i / (kCount / 4)));
}

TEST(SafetensorsWriter, AFullDiskIsNamedBeforeTheData) {
  const TempDir dir;
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 16, 1 << 16};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::string message = message_of<TrainError>([&] {
      SafetensorsWriter(dir.path(), {{"t", DType::f32, {1 << 20}}});
    });
    ::_exit(message.find("model.safetensors") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(entries(dir.path()).empty());
}

TEST(SafetensorsWriter, NamesOutsideAsciiComeBack) {
  const TempDir dir;
  const std::string name = "w\xC3\xA4rme\"\\\n";
  SafetensorsWriter writer(dir.path(), {{name, DType::f32, {1}}, {"b", DType::f32, {1}}}, {.max_shard_bytes = 4});
  const float value = 2;
  writer.write(name, 0, 1, &value);
  writer.write("b", 0, 1, &value);
  writer.finish();
  EXPECT_THAT(CheckpointReader::open(dir.path()).names(), UnorderedElementsAre(name, "b"));
}

}  // namespace
}  // namespace megatoken
