#include "io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "base/error.h"
#include "io/temp_dir.h"

namespace megatoken {
namespace {

using test::message_of;
using test::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string file_of(const std::string& header, const std::string& data, std::int64_t length = -1) {
  const std::uint64_t n = length < 0 ? header.size() : static_cast<std::uint64_t>(length);
  std::string content(8, '\0');
  std::memcpy(content.data(), &n, 8);
  return content + header + data;
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape, int begin, int end) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

struct Opened : ::testing::Test {
  SafetensorsFile open(const std::string& content) {
    return SafetensorsFile::open(dir.write("m.safetensors", content));
  }
  std::string fault(const std::string& content) {
    const std::string message = message_of<FileError>([&] { open(content); });
    EXPECT_TRUE(message.empty() || message.find("m.safetensors") != std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
    return message;
  }
  TempDir dir;
};
using Safetensors = Opened;

TEST_F(Safetensors, ReadsSlicesOfEveryFloatType) {
  const std::vector<float> f{1.0f, -2.5f, 3.25f, 1e30f};
  const std::vector<std::uint16_t> b{0x3F80, 0xC020, 0x4050, 0x7149};
  const std::vector<std::uint16_t> h{0x3C00, 0xC100, 0x4280, 0x7BFF};
  const std::string header = "{\"__metadata__\":{\"format\":\"pt\"}," + tensor("f", "F32", "[2,2]", 0, 16) + "," +
                             tensor("b", "BF16", "[4]", 16, 24) + "," + tensor("h", "F16", "[1,4]", 24, 32) + "}   ";
  const SafetensorsFile file = open(file_of(header, bytes_of(f) + bytes_of(b) + bytes_of(h)));
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.find("none"), nullptr);
  const TensorInfo& info = *file.find("f");
  EXPECT_EQ(info.shape, (std::vector<int64>{2, 2}));
  EXPECT_EQ(info.elements, 4);
  EXPECT_EQ(info.dtype, DType::f32);

  std::vector<float> out(2);
  file.read(info, 1, 2, DType::f32, out.data());
  EXPECT_EQ(out, (std::vector<float>{-2.5f, 3.25f}));
  file.read(*file.find("h"), 1, 2, DType::f32, out.data());
  EXPECT_EQ(out, (std::vector<float>{-2.5f, 3.25f}));
  file.read(*file.find("b"), 1, 2, DType::f32, out.data());
  EXPECT_EQ(out, (std::vector<float>{-2.5f, 3.25f}));
  std::vector<std::uint16_t> rounded(3);
  file.read(info, 0, 3, DType::bf16, rounded.data());
  EXPECT_EQ(rounded, (std::vector<std::uint16_t>{0x3F80, 0xC020, 0x4050}));
  EXPECT_EQ(file.bytes_read(), 8 + 4 + 4 + 12);
}

TEST_F(Safetensors, ReadsAcrossPieces) {
  std::vector<float> values(3'000'000);
  std::iota(values.begin(), values.end(), 0.0f);
  const SafetensorsFile file =
      open(file_of("{" + tensor("t", "F32", "[3000000]", 0, 12'000'000) + "}", bytes_of(values)));
  std::vector<float> out(2'500'000);
  file.read(file.tensors()[0], 123'456, 2'500'000, DType::f32, out.data());
  EXPECT_TRUE(std::equal(out.begin(), out.end(), values.begin() + 123'456));
}

TEST_F(Safetensors, ScalarsEmptyTensorsAndForeignTypesAreFine) {
  const SafetensorsFile file =
      open(file_of("{" + tensor("s", "F32", "[]", 0, 4) + "," + tensor("e", "F32", "[0,7]", 4, 4) + "," +
                       tensor("q", "F8_E4M3", "[3]", 4, 7) + "," + tensor("i", "I64", "[1]", 7, 15) + "}",
                   std::string(15, '\1')));
  EXPECT_EQ(file.find("s")->elements, 1);
  EXPECT_EQ(file.find("e")->elements, 0);
  float out = 0;
  file.read(*file.find("e"), 0, 0, DType::f32, &out);
  EXPECT_FALSE(file.find("q")->dtype.has_value());
  EXPECT_THAT(message_of<FileError>([&] { file.read(*file.find("q"), 0, 1, DType::f32, &out); }),
              AllOf(HasSubstr("\"q\""), HasSubstr("F8_E4M3"), HasSubstr("float32")));
  EXPECT_THAT(message_of<FileError>([&] { file.read(*file.find("i"), 0, 1, DType::f32, &out); }), HasSubstr("I64"));
  std::int64_t raw = 0;
  file.read(*file.find("i"), 0, 1, DType::i64, &raw);
  EXPECT_EQ(raw, 0x0101010101010101);
  EXPECT_THROW(file.read(*file.find("s"), 0, 2, DType::f32, &out), InternalError);
  EXPECT_THROW(file.read(*file.find("s"), -1, 1, DType::f32, &out), InternalError);
}

TEST_F(Safetensors, NamesTruncationAndLeftovers) {
  const std::string good = file_of("{" + tensor("t", "F32", "[4]", 0, 16) + "}", std::string(16, 'x'));
  EXPECT_EQ(fault(good), "");
  for (std::size_t n = 0; n < good.size(); ++n) EXPECT_NE(fault(good.substr(0, n)), "") << n;
  EXPECT_THAT(fault(good.substr(0, good.size() - 1)),
              HasSubstr("truncated: its tensors need 16 bytes of data, the file has 15"));
  EXPECT_THAT(fault(good + "y"), HasSubstr("1 bytes are left over"));
  EXPECT_THAT(fault(""), HasSubstr("truncated"));
  EXPECT_THAT(fault(file_of("{}", "", -1).replace(0, 8, 8, '\xFF')), HasSubstr("header length"));
  EXPECT_THAT(fault("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"), HasSubstr("git lfs pull"));
}

TEST_F(Safetensors, NamesFaultyTensors) {
  const auto header = [&](const std::string& text, int bytes = 16) {
    return fault(file_of(text, std::string(bytes, 'x')));
  };
  EXPECT_THAT(header("{" + tensor("a", "F32", "[4]", 0, 16) + "," + tensor("a", "F32", "[4]", 0, 16) + "}"),
              AllOf(HasSubstr("\"a\""), HasSubstr("twice")));
  EXPECT_THAT(header("{" + tensor("a", "F32", "[2]", 0, 8) + "," + tensor("b", "F32", "[3]", 4, 16) + "}"),
              AllOf(HasSubstr("\"b\""), HasSubstr("overlapping")));
  EXPECT_THAT(header("{" + tensor("a", "F32", "[1]", 0, 4) + "," + tensor("b", "F32", "[2]", 8, 16) + "}"),
              HasSubstr("gap"));
  EXPECT_THAT(header("{" + tensor("a", "F32", "[3]", 0, 16) + "}"), HasSubstr("needs 12 bytes"));
  EXPECT_THAT(header("{" + tensor("a", "F32", "[4]", 16, 0) + "}"), HasSubstr("needs 16 bytes"));
  EXPECT_THAT(header("{" + tensor("a", "F33", "[4]", 0, 16) + "}"), HasSubstr("unknown dtype \"F33\""));
  EXPECT_THAT(header("{" + tensor("a", "F4", "[3]", 0, 1) + "}"), HasSubstr("doesn't end on a byte"));
  EXPECT_THAT(header("{" + tensor("a", "F32", "[-4]", 0, 16) + "}"), HasSubstr("negative"));
  EXPECT_THAT(header("{" + tensor("a", "F32", "[4.0]", 0, 16) + "}"), HasSubstr("whole number"));
  EXPECT_THAT(header("{" + tensor("a", "F32", "[4294967296,4294967296,4]", 0, 16) + "}"),
              HasSubstr("impossible shape"));
  EXPECT_THAT(header("{" + tensor("a", "F32", "[4611686018427387904]", 0, 0) + "}", 0), HasSubstr("impossible shape"));
  EXPECT_THAT(header("{" + tensor("a", "F32", "[18446744073709551615]", 0, 16) + "}"), HasSubstr("too large"));
  EXPECT_THAT(header("{" + tensor("a", "F32", "[99999999999999999999]", 0, 16) + "}"), HasSubstr("whole number"));
  EXPECT_THAT(header(R"({"a":{"dtype":"F32","shape":[4]}})"), HasSubstr("lacks data_offsets"));
  EXPECT_THAT(header(R"({"a":{"dtype":"F32","shape":[4],"shape":[4],"data_offsets":[0,16]}})"), HasSubstr("twice"));
  EXPECT_THAT(header(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16,3]}})"), HasSubstr("3 numbers"));
  EXPECT_THAT(header(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16],"x":1}})"),
              HasSubstr("unknown key \"x\""));
  EXPECT_THAT(header(R"({"__metadata__":{"a":1}})", 0), HasSubstr("number"));
  EXPECT_THAT(header("[]", 0), HasSubstr("an array where"));
  EXPECT_THAT(header("{\"a\\nb\":3}", 0), Not(HasSubstr("\n")));
  EXPECT_THAT(header("{} {}", 0), HasSubstr("malformed"));
  EXPECT_THAT(header(std::string("{}\0\0", 4), 0), HasSubstr("malformed"));
}

TEST_F(Safetensors, RefusesDeepNestingAtOnce) {
  EXPECT_NE(fault(file_of(std::string(5'000'000, '['), "")), "");
  EXPECT_NE(fault(file_of("{\"a\":" + std::string(5'000'000, '['), "")), "");
  EXPECT_NE(fault(file_of("{\"a\":{\"shape\":" + std::string(5'000'000, '['), "")), "");
}

// Deterministic mutations: whatever a file looks like, it is refused by name or every tensor in it can be read.
TEST_F(Safetensors, SurvivesMutations) {
  const std::string header = "{\"__metadata__\":{\"format\":\"pt\"}," + tensor("a.weight", "F32", "[2,2]", 0, 16) +
                             "," + tensor("b", "BF16", "[4]", 16, 24) + "," + tensor("c", "F16", "[2,1]", 24, 28) +
                             "}  ";
  std::string data(28, 'd');
  const std::string good = file_of(header, data);
  ASSERT_EQ(fault(good), "");
  std::mt19937_64 random(7);
  const std::string alphabet = "{}[]\":,0123456789-.eEFB16_ \\u\0\x7F\xC3\xFF";
  int accepted = 0;
  for (int i = 0; i < 6000; ++i) {
    std::string bad = good;
    const int edits = 1 + static_cast<int>(random() % 2);
    for (int e = 0; e < edits && !bad.empty(); ++e) {
      // Half of the edits go to the length and the header, where they hurt.
      const std::size_t at =
          random() % (random() % 2 ? std::min<std::size_t>(bad.size(), 8 + header.size()) : bad.size());
      switch (random() % 6) {
        case 0:
          bad[at] = static_cast<char>(random());
          break;
        case 1:
          bad[at] = alphabet[random() % alphabet.size()];
          break;
        case 2:
          bad.erase(at, 1 + random() % 5);
          break;
        case 3:
          bad.insert(at, 1, alphabet[random() % alphabet.size()]);
          break;
        case 4:
          bad.insert(at, bad.substr(random() % bad.size(), random() % 40));
          break;
        default:
          bad.resize(at);
          break;
      }
    }
    // A header length that agrees with the text lets the damage through to the later checks.
    if (random() % 2 && bad.size() >= 8) {
      const std::size_t close = bad.rfind("}}");
      const std::uint64_t n = close == std::string::npos || close < 8 ? 0 : close + 2 - 8;
      std::memcpy(bad.data(), &n, 8);
    }
    const std::string path = dir.write("m.safetensors", bad);
    try {
      const SafetensorsFile file = SafetensorsFile::open(path);
      ++accepted;
      for (const TensorInfo& info : file.tensors()) {
        ASSERT_LE(info.end, static_cast<int64>(bad.size()));
        std::vector<float> out(static_cast<std::size_t>(info.elements));
        try {
          file.read(info, 0, info.elements, DType::f32, out.data());
        } catch (const FileError& error) {
          ASSERT_THAT(error.what(), HasSubstr("stored as"));
        }
      }
    } catch (const FileError& error) {
      ASSERT_THAT(error.what(), AllOf(HasSubstr("m.safetensors"), Not(HasSubstr("\n"))));
    }
  }
  EXPECT_GT(accepted, 50);  // the mutations aren't all caught by the first check
}

}  // namespace
}  // namespace megatoken
