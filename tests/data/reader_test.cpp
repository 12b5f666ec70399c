#include "data/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <random>

#include "base/error.h"
#include "io/temp_dir.h"

namespace megatoken {
namespace {

using test::message_of;
using test::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<RawRow> read_all(const DatasetSpec& spec) {
  DatasetReader reader(spec);
  std::vector<RawRow> rows;
  RawRow row;
  while (reader.next(row)) rows.push_back(row);
  EXPECT_FALSE(reader.next(row));
  return rows;
}

std::vector<std::string> texts(const DatasetSpec& spec) {
  std::vector<std::string> out;
  for (const RawRow& row : read_all(spec)) out.push_back(row.text);
  return out;
}

std::vector<int64> lines(const DatasetSpec& spec) {
  std::vector<int64> out;
  for (const RawRow& row : read_all(spec)) out.push_back(row.line);
  return out;
}

struct Reader : ::testing::Test {
  TempDir dir;
  DatasetSpec text(const std::string& content, TextUnit unit) {
    return {.name = dir.write("t.txt", content), .unit = unit};
  }
  DatasetSpec json(const std::string& content) { return {.name = dir.write("t.jsonl", content)}; }
  std::string fault(const std::string& content) {
    const std::string message = message_of<FileError>([&] { read_all(json(content)); });
    EXPECT_EQ(message.find('\n'), message.npos) << message;
    return message;
  }
};

TEST_F(Reader, ADocumentIsTheWholeFile) {
  EXPECT_THAT(texts(text("a\n\nb\n", TextUnit::document)), ElementsAre("a\n\nb\n"));
  EXPECT_THAT(texts(text("", TextUnit::document)), ElementsAre(""));
  EXPECT_THAT(texts(text("\xEF\xBB\xBFx\r\ny\rz\r\r\n", TextUnit::document)), ElementsAre("x\ny\nz\n\n"));
  const std::string nul("a\0b\xFF", 4);
  EXPECT_THAT(texts(text(nul, TextUnit::document)), ElementsAre(nul));
}

TEST_F(Reader, LinesAreThoseOfUniversalNewlines) {
  EXPECT_THAT(texts(text("a\nb\r\nc\rd\n", TextUnit::line)), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(texts(text("a\n\n\nb", TextUnit::line)), ElementsAre("a", "", "", "b"));
  EXPECT_THAT(texts(text("a\r\r\nb\r", TextUnit::line)), ElementsAre("a", "", "b"));
  EXPECT_THAT(texts(text("\r", TextUnit::line)), ElementsAre(""));
  EXPECT_THAT(texts(text("", TextUnit::line)), IsEmpty());
  EXPECT_THAT(texts(text("\xEF\xBB\xBF"
                         "a",
                         TextUnit::line)),
              ElementsAre("a"));
  EXPECT_THAT(lines(text("a\r\nb\nc\rd", TextUnit::line)), ElementsAre(1, 2, 3, 4));
}

TEST_F(Reader, ParagraphsAreCutAtDoubleNewlines) {
  EXPECT_THAT(texts(text("a\nb\n\nc\n", TextUnit::paragraph)), ElementsAre("a\nb", "c\n"));
  EXPECT_THAT(texts(text("a\n\n\nb", TextUnit::paragraph)), ElementsAre("a", "\nb"));
  EXPECT_THAT(texts(text("\n\n\n\na\r\n\r\nb\n\n", TextUnit::paragraph)), ElementsAre("a", "b"));
  EXPECT_THAT(texts(text("\n", TextUnit::paragraph)), ElementsAre("\n"));
  EXPECT_THAT(texts(text("", TextUnit::paragraph)), IsEmpty());
  EXPECT_THAT(lines(text("a\n\nb\nc\n\nd", TextUnit::paragraph)), ElementsAre(1, 3, 6));
}

// The definition, in a few lines: translate newlines, split.
TEST_F(Reader, ParagraphsAndLinesEqualTheirDefinition) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 3000; ++i) {
    std::string content;
    for (int n = static_cast<int>(random() % 14); n > 0; --n) content += "ab\n\n\n\r\r"[random() % 7];
    std::string plain;
    for (std::size_t at = 0; at < content.size(); ++at)
      if (content[at] != '\r')
        plain += content[at];
      else if (at + 1 == content.size() || content[at + 1] != '\n')
        plain += '\n';
    const auto split = [&](const std::string& by) {
      std::vector<std::string> parts;
      std::size_t begin = 0;
      for (std::size_t at; (at = plain.find(by, begin)) != plain.npos; begin = at + by.size())
        parts.push_back(plain.substr(begin, at - begin));
      if (begin < plain.size()) parts.push_back(plain.substr(begin));
      return parts;
    };
    auto paragraphs = split("\n\n");
    std::erase(paragraphs, "");
    ASSERT_EQ(texts(text(content, TextUnit::paragraph)), paragraphs) << content;
    ASSERT_EQ(texts(text(content, TextUnit::line)), split("\n")) << content;
    ASSERT_THAT(texts(text(content, TextUnit::document)), ElementsAre(plain));
  }
}

TEST_F(Reader, ReadsEveryKindOfJsonRow) {
  const auto rows =
      read_all(json("\xEF\xBB\xBF{\"text\": \"a\\u0000\\u00e9\\ud83d\\ude00\", \"meta\": {\"x\": [1, {}]}}\r\n"
                    "\n  \t\n"
                    "{\"input_ids\": [1, 2, 3]}\n"
                    "{\"labels\": [-100, 2, 3], \"input_ids\": [1, 2, 3], \"attention_mask\": [1, 1, 1]}\n"
                    "{\"prompt\": \"p\", \"completion\": \"c\", \"text\": null}\n"
                    "{\"input_ids\": [], \"labels\": null}"));
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[0].text, std::string("a\0\xC3\xA9\xF0\x9F\x98\x80", 8));
  EXPECT_EQ(rows[0].place(), dir.file("t.jsonl") + ":1");
  EXPECT_EQ(rows[1].place(), dir.file("t.jsonl") + ":4");
  EXPECT_EQ(rows[1].kind, RawRow::Kind::ids);
  EXPECT_FALSE(rows[1].has_labels);
  EXPECT_THAT(rows[2].labels, ElementsAre(-100, 2, 3));
  EXPECT_THAT(rows[2].input_ids, ElementsAre(1, 2, 3));
  EXPECT_EQ(rows[3].kind, RawRow::Kind::prompt_completion);
  EXPECT_EQ(rows[3].text + "|" + rows[3].completion, "p|c");
  EXPECT_TRUE(rows[4].input_ids.empty());
  EXPECT_FALSE(rows[4].has_labels);
}

TEST_F(Reader, TheTextFieldHasAnyName) {
  DatasetSpec spec = json("{\"content\": \"a\", \"text\": \"b\"}");
  spec.text_field = "content";
  EXPECT_THAT(texts(spec), ElementsAre("a"));
  for (const char* name : {"prompt", "completion"}) {
    spec = json("{\"" + std::string(name) + "\": \"a\"}");
    spec.text_field = name;
    EXPECT_THAT(texts(spec), ElementsAre("a"));
  }
  spec = json("{\"prompt\": \"p\", \"completion\": \"c\"}");
  spec.text_field = "completion";
  const auto rows = read_all(spec);
  EXPECT_EQ(rows[0].text + "|" + rows[0].completion, "p|c");
}

TEST_F(Reader, NamesFileLineAndFault) {
  const std::string good = "{\"text\": \"a\"}\n";
  EXPECT_EQ(fault(good), "");
  EXPECT_THAT(fault(good + "\n{\"text\": \"a\""), HasSubstr("t.jsonl:3: "));
  EXPECT_THAT(fault("{\"text\": \"a\"} x"), HasSubstr("t.jsonl:1: "));
  EXPECT_THAT(fault("{\n\"text\": \"a\"}"), HasSubstr(":1: "));
  EXPECT_THAT(fault("{\"text\": \"\xFF\"}"), HasSubstr("UTF-8"));
  EXPECT_THAT(fault("{\"text\": \"\\ud800\"}"), HasSubstr("surrogate"));
  EXPECT_THAT(fault(std::string("{\"text\": \"a\"}\0{}", 16)), HasSubstr("NUL"));
  EXPECT_THAT(fault("3"), HasSubstr("must be an object"));
  EXPECT_THAT(fault("null"), HasSubstr("must be an object"));
  EXPECT_THAT(fault("\"text\""), HasSubstr("must be an object"));
  EXPECT_THAT(fault("{}"), HasSubstr("no \"text\" (dataset_text_field)"));
  EXPECT_THAT(fault("{\"text\": null}"), HasSubstr("no \"text\""));
  EXPECT_THAT(fault("{\"text\": 3}"), HasSubstr("\"text\" must be a text, not a number"));
  EXPECT_THAT(fault("{\"text\": [\"a\"]}"), HasSubstr("must be a text, not a list"));
  EXPECT_THAT(fault("{\"text\": \"a\", \"text\": \"b\"}"), HasSubstr("\"text\" stands twice"));
  EXPECT_THAT(fault("{\"prompt\": \"a\"}"), HasSubstr("\"completion\" is missing"));
  EXPECT_THAT(fault("{\"prompt\": [{\"role\": \"user\"}], \"completion\": \"a\"}"), HasSubstr("chat templates"));
  EXPECT_THAT(fault("{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}"),
              AllOf(HasSubstr("\"messages\""), HasSubstr("chat templates")));
  EXPECT_THAT(fault("{\"conversations\": [], \"text\": \"a\"}"), HasSubstr("chat templates"));
  EXPECT_THAT(fault("{\"images\": [], \"text\": \"a\"}"), HasSubstr("only text"));
  EXPECT_THAT(fault("{\"input_ids\": \"a\"}"), HasSubstr("must be a list of integers, not a text"));
  EXPECT_THAT(fault("{\"input_ids\": 3}"), HasSubstr("not a number"));
  EXPECT_THAT(fault("{\"input_ids\": {\"a\": 1}}"), HasSubstr("not an object"));
  EXPECT_THAT(fault("{\"input_ids\": [[1]]}"), HasSubstr("list of integers"));
  EXPECT_THAT(fault("{\"input_ids\": [1, {}]}"), HasSubstr("list of integers"));
  EXPECT_THAT(fault("{\"input_ids\": [1, null]}"), HasSubstr("other things than integers"));
  EXPECT_THAT(fault("{\"input_ids\": [1.0]}"), HasSubstr("other things than integers"));
  EXPECT_THAT(fault("{\"input_ids\": [-1]}"), HasSubstr("has -1"));
  EXPECT_THAT(fault("{\"input_ids\": [4294967296]}"), HasSubstr("no token id"));
  EXPECT_THAT(fault("{\"input_ids\": [99999999999999999999999]}"), HasSubstr("integers"));
  EXPECT_THAT(fault("{\"input_ids\": [1, 2], \"labels\": [1]}"), HasSubstr("\"labels\" has 1 entries for 2"));
  EXPECT_THAT(fault("{\"input_ids\": [1], \"labels\": [-1]}"), HasSubstr("-1, neither"));
  EXPECT_THAT(fault("{\"input_ids\": [1, 2], \"attention_mask\": [1, 0]}"), HasSubstr("attention_mask"));
  EXPECT_THAT(fault("{\"input_ids\": [1, 2], \"attention_mask\": [1]}"), HasSubstr("attention_mask"));
  for (const char* key : {"completion_mask", "assistant_masks", "position_ids", "seq_lengths"})
    EXPECT_THAT(fault("{\"input_ids\": [1], \"" + std::string(key) + "\": [1]}"), HasSubstr("not honoured"));
  EXPECT_THAT(fault("{\"a\": " + std::string(3'000'000, '[')), HasSubstr("nested deeper"));
  EXPECT_THAT(fault(std::string(3'000'000, '{')), HasSubstr(":1: "));
  EXPECT_THAT(fault("\xFF\xFE{"), HasSubstr("UTF-16"));
}

TEST_F(Reader, AJsonListIsRowsToo) {
  const DatasetSpec spec{
      .name = dir.write("t.json", " \n[ {\"text\": \"a}]\\\"\"},\n\n {\"text\":\n \"b\", \"m\": {\"x\": \"{\"}} ]\n")};
  EXPECT_THAT(texts(spec), ElementsAre("a}]\"", "b"));
  EXPECT_THAT(lines(spec), ElementsAre(2, 4));
  EXPECT_THAT(texts(json("[]")), IsEmpty());
  EXPECT_THAT(texts(json("")), IsEmpty());
  EXPECT_THAT(fault("[{\"text\": \"a\"}"), HasSubstr("no end"));
  EXPECT_THAT(fault("[{\"text\": \"a\"} {\"text\": \"a\"}]"), HasSubstr("comma"));
  EXPECT_THAT(fault("[{\"text\": \"a\"},]"), HasSubstr("must be an object"));
  EXPECT_THAT(fault("[1, 2]"), HasSubstr("must be an object"));
  EXPECT_THAT(fault("[{\"text\": \"a\"}] x"), HasSubstr("follows"));
  EXPECT_THAT(fault("[{\"text\": \"a"), HasSubstr("no end"));
  EXPECT_THAT(fault("[{\"text\": \"a\\"), HasSubstr("no end"));
  EXPECT_THAT(fault("[\n{\"text\":\n 3}]"), HasSubstr("t.jsonl:2: "));
  EXPECT_THAT(fault("["), HasSubstr("no end"));
}

TEST_F(Reader, SixtyMegabyteLinesAndManyWindows) {
  const std::string longest(60'000'000, 'x');
  DatasetSpec spec = json("{\"text\": \"" + longest + "\"}\n{\"text\": \"y\"}\n");
  auto rows = read_all(spec);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].text, longest);
  EXPECT_EQ(rows[1].text, "y");
  rows.clear();
  spec = text(longest + "\n" + longest + "\nz", TextUnit::line);
  rows = read_all(spec);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1].text, longest);
  EXPECT_EQ(rows[2].text, "z");
}

// Deterministic mutations of rows: read, or refused with one line that names file and line.
TEST_F(Reader, SurvivesMutations) {
  const std::string good =
      "{\"text\": \"a b\", \"meta\": [1, {\"k\": null}]}\n{\"input_ids\": [1, 2, 3], \"labels\": [-100, 2, 3]}\n"
      "{\"prompt\": \"p\", \"completion\": \"c\"}\n";
  std::mt19937_64 random(13);
  const std::string alphabet = "{}[]\":,0123-.eE \\un\n\r\0\x7F\xC3\xFF";
  int read = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string bad = random() % 4 ? good : "[" + good.substr(0, good.find('\n')) + "]";
    for (int e = 1 + static_cast<int>(random() % 2); e > 0 && !bad.empty(); --e) {
      const std::size_t at = random() % bad.size();
      switch (random() % 4) {
        case 0:
          bad[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          bad.erase(at, 1 + random() % 6);
          break;
        case 2:
          bad.insert(at, bad.substr(random() % bad.size(), random() % 30));
          break;
        default:
          bad.insert(at, 1, alphabet[random() % alphabet.size()]);
          break;
      }
    }
    try {
      read += !read_all(json(bad)).empty();
    } catch (const FileError& error) {
      ASSERT_THAT(error.what(), AllOf(HasSubstr("t.jsonl:"), Not(HasSubstr("\n"))));
    }
  }
  EXPECT_GT(read, 300);
}

TEST_F(Reader, FilesFollowEachOther) {
  dir.write("d/b.jsonl", "{\"text\": \"b\"}");
  dir.write("d/a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"a2\"}");
  dir.write("d/empty.jsonl", "");
  dir.write("d/sub/c.json", "[{\"text\": \"c\"}]");
  dir.write("d/README.md", "x");
  dir.write("d/.hidden.jsonl", "broken");
  EXPECT_THAT(texts({.name = dir.file("d")}), ElementsAre("a", "a2", "b", "c"));
  EXPECT_THAT(DatasetReader({.name = dir.file("d")}).files().ignored, ElementsAre(dir.file("d/README.md")));
}

struct Files : Reader {
  std::vector<std::string> found(const std::string& name, const std::vector<std::string>& data_files = {},
                                 const std::string& split = "train") {
    std::vector<std::string> names;
    for (const std::string& path : find_data_files(name, data_files, split).paths)
      names.push_back(path.substr(dir.path().size() + 1));
    return names;
  }
  template <typename ErrorType = FileError>
  std::string refusal(const std::string& name, const std::vector<std::string>& data_files = {},
                      const std::string& split = "train") {
    return message_of<ErrorType>([&] { find_data_files(name, data_files, split); });
  }
};

TEST_F(Files, PatternsMatchNamesAndDepths) {
  for (const char* name : {"a1.txt", "a2.txt", "b.txt", "x/a3.txt", "x/y/a4.txt", "x/n.md"}) dir.write(name, "t");
  EXPECT_THAT(found(dir.file("a*.txt")), ElementsAre("a1.txt", "a2.txt"));
  EXPECT_THAT(found(dir.file("a[2-9].txt")), ElementsAre("a2.txt"));
  EXPECT_THAT(found(dir.file("?.txt")), ElementsAre("b.txt"));
  EXPECT_THAT(found(dir.file("*/a3.txt")), ElementsAre("x/a3.txt"));
  EXPECT_THAT(found(dir.file("**/a*.txt")), ElementsAre("a1.txt", "a2.txt", "x/a3.txt", "x/y/a4.txt"));
  EXPECT_THAT(found(dir.file("x/**")), ElementsAre("x/a3.txt", "x/y/a4.txt"));
  EXPECT_THAT(found("text", {dir.file("b.txt"), dir.file("a*.txt"), dir.file("x/n.md")}),
              ElementsAre("b.txt", "a1.txt", "a2.txt", "x/n.md"));
  EXPECT_THAT(refusal(dir.file("z*.txt")), HasSubstr("no file matches"));
  EXPECT_THAT(refusal("text", {dir.file("z*.txt")}), HasSubstr("no file matches"));
}

TEST_F(Files, SplitsAreNamedByPaths) {
  for (const char* name : {"s/train-0.jsonl", "s/train-1.jsonl", "s/test.jsonl", "s/dev-x.jsonl", "s/latest.jsonl"})
    dir.write(name, "{}");
  EXPECT_THAT(found(dir.file("s")), ElementsAre("s/train-0.jsonl", "s/train-1.jsonl"));
  EXPECT_THAT(found(dir.file("s"), {}, "test"), ElementsAre("s/test.jsonl"));
  EXPECT_THAT(found(dir.file("s"), {}, "validation"), ElementsAre("s/dev-x.jsonl"));
  EXPECT_THAT(refusal(dir.file("s"), {}, "dev"), HasSubstr("there are test, train, validation"));
  EXPECT_THAT(refusal(dir.file("s/test.jsonl"), {}, "test"), HasSubstr("split"));
  // Directories decide where one names a split.
  for (const char* name : {"t/train/test.jsonl", "t/eval/train.jsonl", "t/train.jsonl"}) dir.write(name, "{}");
  EXPECT_THAT(found(dir.file("t")), ElementsAre("t/train/test.jsonl"));
  EXPECT_THAT(found(dir.file("t"), {}, "test"), ElementsAre("t/eval/train.jsonl"));
  dir.write("plain/one.txt", "x");
  EXPECT_THAT(found(dir.file("plain")), ElementsAre("plain/one.txt"));
  EXPECT_THAT(refusal(dir.file("plain"), {}, "test"), HasSubstr("there is train"));
}

// A link that leads nowhere, a pipe: by a data file's name they are part of the dataset, and its rows are missing.
TEST_F(Files, WhatCannotBeReadIsNotPassedOver) {
  for (const char* kind : {"link", "pipe"}) {
    const std::string folder = dir.file(kind);
    dir.write(std::string(kind) + "/a.txt", "x");
    const std::string path = folder + "/b.txt";
    if (kind == std::string("link"))
      std::filesystem::create_symlink(dir.file("nowhere.txt"), path);
    else
      ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    for (const std::string& name : {folder, folder + "/*.txt", dir.file("**/b.txt"), path})
      EXPECT_THAT(message_of<FileError>([&] { read_all({.name = name}); }), HasSubstr("b.txt")) << name;
    std::filesystem::remove(path);
  }
}

TEST_F(Files, NamesWhatIsNotRead) {
  dir.write("a.parquet", "x");
  dir.write("a.csv", "x");
  dir.write("a.jsonl.gz", "x");
  dir.write("a.bin", "x");
  dir.write("mixed/a.txt", "x");
  dir.write("mixed/b.jsonl", "{}");
  dir.write("none/a.md", "x");
  EXPECT_THAT(refusal(dir.file("a.parquet")), AllOf(HasSubstr(".parquet"), HasSubstr(".jsonl")));
  EXPECT_THAT(refusal("parquet", {dir.file("a.parquet")}), HasSubstr("not read yet"));
  EXPECT_THAT(refusal("json", {dir.file("a.parquet")}), HasSubstr("not read yet"));
  EXPECT_THAT(refusal(dir.file("a.csv")), HasSubstr("not read yet"));
  EXPECT_THAT(refusal(dir.file("a.jsonl.gz")), HasSubstr("unpack"));
  EXPECT_THAT(refusal(dir.file("a.bin")), HasSubstr("neither .txt"));
  EXPECT_THAT(refusal(dir.file("mixed")), HasSubstr("text and JSON files"));
  EXPECT_THAT(refusal(dir.file("none")), HasSubstr("no .txt"));
  EXPECT_THAT(refusal("trl-lib/Capybara"), HasSubstr("never downloaded"));
  EXPECT_THAT(refusal("json", {dir.file("missing.jsonl")}), "");  // named when it is opened
  EXPECT_THAT(message_of<FileError>([&] { read_all({.name = "json", .data_files = {dir.file("missing.jsonl")}}); }),
              HasSubstr("missing.jsonl"));
  EXPECT_THAT(refusal("json", {dir.path()}), HasSubstr("directory"));
  EXPECT_THAT(refusal<ConfigError>("json"), HasSubstr("data_files"));
  EXPECT_THAT(refusal<ConfigError>(dir.file("a.bin"), {"x"}), HasSubstr("data_files"));
}

}  // namespace
}  // namespace megatoken
