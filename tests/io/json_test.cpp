#include "io/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "io/temp_dir.h"

namespace megatoken {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string fault(const std::string& text) {
  return message_of<FileError>([&] { parse_json(text, "some.json"); });
}

TEST(Json, ParsesValues) {
  EXPECT_EQ(parse_json(R"({"a": [1, {"a": 2}]})", "x")["a"][1]["a"], 2);
  EXPECT_EQ(parse_json("3", "x"), 3);
}

TEST(Json, NamesFileAndLine) {
  EXPECT_THAT(fault("{\n\"a\": 1,\n}"), AllOf(HasSubstr("some.json: line 3"), Not(HasSubstr("\n"))));
  EXPECT_THAT(fault("{\"a\": \"" + std::string(1 << 20, 'x')),
              AllOf(HasSubstr("line 1"), Not(HasSubstr(std::string(300, 'x')))));
  EXPECT_THAT(fault(""), HasSubstr("some.json"));
  EXPECT_THAT(fault("{} {}"), HasSubstr("some.json"));
  EXPECT_THAT(fault(std::string("{}\n\0{}", 6)), HasSubstr("line 2: a NUL byte"));
  EXPECT_THAT(fault("{\"a\": \"\xFF\"}"), HasSubstr("UTF-8"));
}

TEST(Json, RefusesDuplicateKeysAtAnyDepth) {
  EXPECT_THAT(fault(R"({"a": 1, "b": {"c": 1, "c": 2}})"), HasSubstr("\"c\" stands twice"));
  EXPECT_EQ(fault(R"([{"a": 1}, {"a": 1, "b": {"a": 1}}])"), "");
}

TEST(Json, RefusesDeepNestingWithoutRecursion) {
  EXPECT_THAT(fault(std::string(10'000'000, '[')), HasSubstr("nested deeper than 64"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_THAT(fault(objects), HasSubstr("nested deeper"));
}

TEST(Json, ByteOrderMarkIsSkipped) {
  const test::TempDir dir;
  EXPECT_EQ(read_json_file(dir.write("bom.json", "\xEF\xBB\xBF{\"a\": 1}"))["a"], 1);
}

TEST(Json, RequireNamesTheKey) {
  using Type = nlohmann::json::value_t;
  const auto value = parse_json(R"({"n": 1, "t": "x"})", "x");
  EXPECT_EQ(require(value, "n", Type::number_integer, "w"), 1);
  EXPECT_THAT(message_of<FileError>([&] { require(value, "none", Type::string, "w"); }),
              HasSubstr("\"none\" is missing"));
  EXPECT_THAT(message_of<FileError>([&] { require(value, "t", Type::object, "w"); }), HasSubstr("wrong type (string)"));
}

}  // namespace
}  // namespace megatoken
