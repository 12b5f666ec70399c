#include "io/checkpoint_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "io/safetensors_writer.h"
#include "io/temp_dir.h"

namespace megatoken {
namespace {

using test::message_of;
using test::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

void write_tensors(const std::string& dir, const std::string& stem, const std::vector<std::string>& names) {
  std::vector<TensorDeclaration> tensors;
  for (const std::string& name : names) tensors.push_back({name, DType::f32, {2}});
  SafetensorsWriter writer(dir, tensors, {.stem = stem});
  for (std::size_t i = 0; i < names.size(); ++i) {
    const float values[2] = {static_cast<float>(i), 0.5f};
    writer.write(names[i], 0, 2, values);
  }
  writer.finish();
}

std::string fault(const std::string& dir) {
  return message_of<FileError>([&] { CheckpointReader::open(dir); });
}

constexpr const char* kIndex = "model.safetensors.index.json";

TEST(CheckpointReader, ReadsShards) {
  const TempDir dir;
  write_tensors(dir.path(), "x1", {"a", "b"});
  write_tensors(dir.path(), "x2", {"c"});
  dir.write(kIndex, R"({"metadata":{},"weight_map":{"a":"x1.safetensors","b":"x1.safetensors","c":"x2.safetensors"}})");
  const CheckpointReader reader = CheckpointReader::open(dir.path());
  EXPECT_THAT(reader.names(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(reader.total_bytes(), 24);
  EXPECT_EQ(reader.find("b")->shape_text(), "[2]");
  EXPECT_FALSE(reader.find("d"));
  float value = 0;
  reader.read("b", 0, 1, DType::f32, &value);
  EXPECT_EQ(value, 1.0f);
  EXPECT_EQ(reader.bytes_read(), 4);
  EXPECT_THAT(message_of<FileError>([&] { reader.read("d", 0, 1, DType::f32, &value); }),
              HasSubstr("\"d\" is missing"));
}

TEST(CheckpointReader, PrefersTheSingleFileAsTransformersDoes) {
  const TempDir dir;
  write_tensors(dir.path(), "model", {"single"});
  dir.write(kIndex, R"({"weight_map":{"a":"gone.safetensors"}})");
  EXPECT_THAT(CheckpointReader::open(dir.path()).names(), ElementsAre("single"));
}

TEST(CheckpointReader, NamesWhatIsWrong) {
  const TempDir dir;
  EXPECT_THAT(fault(dir.file("none")), HasSubstr("no such directory"));
  EXPECT_THAT(fault(dir.path()), HasSubstr("no model.safetensors"));
  dir.write("pytorch_model.bin", "x");
  EXPECT_THAT(fault(dir.path()), HasSubstr("pytorch_model.bin only"));

  write_tensors(dir.path(), "x1", {"a", "b"});
  write_tensors(dir.path(), "x2", {"b"});
  dir.write(kIndex, R"({"weight_map":{"a":"x1.safetensors","b":"x2.safetensors"}})");
  EXPECT_THAT(fault(dir.path()), AllOf(HasSubstr("\"b\""), HasSubstr("x1.safetensors"), HasSubstr("x2.safetensors")));
  dir.write(kIndex, R"({"weight_map":{"a":"x1.safetensors","c":"x1.safetensors"}})");
  EXPECT_THAT(fault(dir.path()), AllOf(HasSubstr("\"c\""), HasSubstr("x1.safetensors")));
  dir.write(kIndex, R"({"weight_map":{"a":"x9.safetensors"}})");
  EXPECT_THAT(fault(dir.path()), AllOf(HasSubstr("x9.safetensors"), HasSubstr("missing")));
  for (const char* name : {"../x1.safetensors", "/etc/passwd", "..", "", "a/b"}) {
    dir.write(kIndex, "{\"weight_map\":{\"a\":\"" + std::string(name) + "\"}}");
    EXPECT_THAT(fault(dir.path()), HasSubstr("not the name of a file"));
  }
  dir.write(kIndex, R"({"weight_map":{"a":3}})");
  EXPECT_THAT(fault(dir.path()), HasSubstr("not a text"));
  dir.write(kIndex, R"({"weight_map":{}})");
  EXPECT_THAT(fault(dir.path()), HasSubstr("no tensor"));
  dir.write(kIndex, R"({"weight_map":{"a":"x1.safetensors","a":"x2.safetensors"}})");
  EXPECT_THAT(fault(dir.path()), HasSubstr("stands twice"));
  dir.write(kIndex, R"({"weights":{}})");
  EXPECT_THAT(fault(dir.path()), HasSubstr("\"weight_map\" is missing"));
  dir.write(kIndex, "[]");
  EXPECT_THAT(fault(dir.path()), HasSubstr("weight_map"));
}

TEST(CheckpointReader, SurvivesMutatedIndexes) {
  const TempDir dir;
  write_tensors(dir.path(), "x1", {"a", "b"});
  write_tensors(dir.path(), "x2", {"c"});
  const std::string good =
      R"({"metadata":{"total_size":24},"weight_map":{"a":"x1.safetensors","b":"x1.safetensors","c":"x2.safetensors"}})";
  std::mt19937_64 random(11);
  const std::string alphabet = "{}[]\":,0123x./\\ \0\xFF";
  int refused = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string bad = good;
    for (int e = 1 + static_cast<int>(random() % 3); e > 0 && !bad.empty(); --e) {
      const std::size_t at = random() % bad.size();
      switch (random() % 4) {
        case 0:
          bad[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          bad.erase(at, 1 + random() % 8);
          break;
        case 2:
          bad.insert(at, bad.substr(random() % bad.size(), random() % 30));
          break;
        default:
          bad.resize(at);
          break;
      }
    }
    dir.write(kIndex, bad);
    try {
      const CheckpointReader reader = CheckpointReader::open(dir.path());
      float value = 0;
      for (const std::string& name : reader.names()) reader.read(name, 0, 1, DType::f32, &value);
    } catch (const FileError& error) {
      ++refused;
      ASSERT_THAT(error.what(), AllOf(HasSubstr(dir.path()), Not(HasSubstr("\n"))));
    }
  }
  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace megatoken
