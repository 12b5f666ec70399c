// Malformed and unsupported files: one FileError that names the file and the place, never a crash.
#include "text/tokenizer_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>

#include "base/error.h"
#include "text/text_cases.h"
#include "text/tokenizer.h"

namespace megatoken {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class TokenizerFiles : public testing::Test {
 protected:
  TokenizerFiles() {
    std::string pattern = (std::filesystem::temp_directory_path() / "megatoken-tokenizer-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw std::runtime_error("mkdtemp");
    directory_ = pattern;
  }
  ~TokenizerFiles() override { std::filesystem::remove_all(directory_); }

  static json sound() {
    return json::parse(
        R"({"version": "1.0", "added_tokens": [{"id": 3, "content": "<x>", "single_word": false, "lstrip": false,
      "rstrip": false, "normalized": false, "special": true}], "normalizer": null, "pre_tokenizer": null, "post_processor": null,
      "decoder": null, "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}})");
  }
  void write(const std::string& name, const std::string& text) const { std::ofstream(directory_ + "/" + name) << text; }

  // The message of the FileError, or "" when the directory loads.
  std::string message() const {
    try {
      const Tokenizer tokenizer = Tokenizer::load(directory_);
      tokenizer.encode("ab <x> \xff zz");
      return "";
    } catch (const FileError& error) {
      EXPECT_EQ(error.code(), ExitCode::file);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(directory_), Not(HasSubstr("\n"))));
      return error.what();
    }
  }
  std::string message_of(const std::string& text) const {
    write("tokenizer.json", text);
    return message();
  }
  // The message after a change of the sound file.
  std::string changed(const std::function<void(json&)>& change) const {
    json file = sound();
    change(file);
    return message_of(file.dump());
  }

  std::string directory_;
};

TEST_F(TokenizerFiles, TheSoundOneLoads) {
  EXPECT_EQ(message_of(sound().dump()), "");
  EXPECT_EQ(message_of("\xEF\xBB\xBF" + sound().dump()), "");
  EXPECT_EQ(Tokenizer::load(directory_).encode("abab<x>b"), (std::vector<std::int32_t>{2, 2, 3, 1}));
}

TEST_F(TokenizerFiles, MissingFilesAreNamed) { EXPECT_THAT(message(), HasSubstr("tokenizer.json: not found")); }

TEST_F(TokenizerFiles, BrokenJsonIsNamedWithItsLine) {
  const std::string text = sound().dump(1);
  EXPECT_THAT(message_of(""), HasSubstr("tokenizer.json: line 1"));
  EXPECT_THAT(message_of(text.substr(0, text.find("\"merges\""))), HasSubstr("tokenizer.json: line "));
  std::string bad = text;
  bad.replace(bad.find("\"lstrip\""), 8, "lstrip");
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<long>(text.find("\"lstrip\"")), '\n');
  EXPECT_THAT(message_of(bad), HasSubstr("line " + std::to_string(line)));
  EXPECT_THAT(message_of("[1, 2]"), HasSubstr("expected an object"));
  EXPECT_THAT(message_of("{\"model\": {\"vocab\": {\"\xff\": 1}}}"), HasSubstr("UTF-8"));
  EXPECT_THAT(message_of(R"({"model": {"vocab": {"\ud800": 1}}})"), HasSubstr("line 1"));
}

TEST_F(TokenizerFiles, NothingIsPassedOverBehindANul) {
  const std::string text = sound().dump();
  for (const std::size_t at : {std::size_t{0}, text.size() / 2, text.size()}) {
    const std::string bad = "\n" + text.substr(0, at) + std::string(1, '\0') + text.substr(at) + "x";
    EXPECT_THAT(message_of(bad), HasSubstr("tokenizer.json: line 2: a NUL byte"));
    EXPECT_THROW(parse_tokenizer_file(bad, directory_ + "/tokenizer.json"), FileError);
  }
  EXPECT_THAT(message_of(text + std::string(3 << 20, ' ') + '\0'), HasSubstr("NUL"));
}

TEST_F(TokenizerFiles, EveryTruncationIsRefused) {
  const std::string text = sound().dump();
  for (std::size_t size = 0; size < text.size(); ++size) EXPECT_NE(message_of(text.substr(0, size)), "") << size;
}

TEST_F(TokenizerFiles, DeepNestingIsRefused) {
  for (const std::string opening : {"[", "{\"a\":", "{\"model\":{\"x\":"})
    EXPECT_NE(message_of(text_cases::times(opening, 200000)), "");
  EXPECT_THAT(message_of("{\"a\":" + std::string(100000, '[')), HasSubstr("nested deeper"));
  write("tokenizer.json", sound().dump());
  write("tokenizer_config.json", "{\"a\":" + std::string(100000, '['));
  EXPECT_THAT(message(), HasSubstr("tokenizer_config.json"));
}

TEST_F(TokenizerFiles, TheModelIsChecked) {
  const auto model = [&](const char* key, json value) {
    return changed([&](json& file) { file["model"][key] = std::move(value); });
  };
  EXPECT_THAT(changed([](json& f) { f.erase("model"); }), HasSubstr("\"model\""));
  EXPECT_THAT(changed([](json& f) { f["model"] = 3; }), HasSubstr("\"model\""));
  EXPECT_THAT(changed([](json& f) { f["model"].erase("vocab"); }), HasSubstr("\"model.vocab\" is missing"));
  EXPECT_THAT(changed([](json& f) { f["model"].erase("merges"); }), HasSubstr("\"model.merges\" is missing"));
  EXPECT_THAT(model("type", "WordPiece"), HasSubstr("\"WordPiece\""));
  EXPECT_THAT(model("type", 3), HasSubstr("\"type\" must be a string"));
  EXPECT_THAT(message_of(R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", -1.5]]}})"),
              HasSubstr("\"Unigram\""));
  EXPECT_THAT(model("vocab", json::array()), HasSubstr("model.vocab"));
  EXPECT_THAT(model("vocab", {{"a", 0}, {"b", 1}, {"ab", "2"}}), AllOf(HasSubstr("\"ab\""), HasSubstr("a string")));
  EXPECT_THAT(model("vocab", {{"a", 0}, {"b", 1}, {"ab", 2.5}}), HasSubstr("\"ab\""));
  EXPECT_THAT(model("vocab", {{"a", 0}, {"b", 1}, {"ab", nullptr}}), HasSubstr("\"ab\""));
  EXPECT_THAT(model("vocab", {{"a", 0}, {"b", 1}, {"ab", {{"x", 1}}}}), HasSubstr("\"ab\""));
  EXPECT_THAT(model("vocab", {{"a", 0}, {"b", 1}, {"ab", 1}}), AllOf(HasSubstr("same id 1"), HasSubstr("\"ab\"")));
  for (const json& id : {json(-1), json(1 << 24), json(4294967296), json(18446744073709551615u)})
    EXPECT_THAT(model("vocab", {{"a", 0}, {"b", 1}, {"ab", id}}),
                AllOf(HasSubstr("\"ab\""), HasSubstr("ids must be in")));
  EXPECT_THAT(message_of(R"({"model": {"vocab": {"a": 0, "a": 1}, "merges": []}})"), HasSubstr("\"a\" stands twice"));
  EXPECT_THAT(message_of(R"({"model": {"vocab": {}, "vocab": {}, "merges": []}})"),
              HasSubstr("\"vocab\" stands twice"));
  EXPECT_THAT(message_of(R"({"model": {}, "model": {}})"), HasSubstr("\"model\" stands twice"));
  EXPECT_THAT(model("dropout", 0.1), HasSubstr("dropout"));
  EXPECT_THAT(model("byte_fallback", "yes"), HasSubstr("byte_fallback"));
  EXPECT_THAT(model("unk_token", 5), HasSubstr("unk_token"));
  EXPECT_THAT(model("unk_token", "[UNK]"), AllOf(HasSubstr("unk_token"), HasSubstr("[UNK]")));  // met when encoding
}

TEST_F(TokenizerFiles, MergesAreChecked) {
  const auto merges = [&](json value) {
    return changed([&](json& file) { file["model"]["merges"] = std::move(value); });
  };
  EXPECT_EQ(merges(json::array({"a b"})), "");
  EXPECT_EQ(merges(json::array({"#version: 0.2", "a b"})), "");
  EXPECT_THAT(merges(json::array({"a b c"})), HasSubstr("model.merges[0]"));
  EXPECT_THAT(merges(json::array({"a b", "ab"})), HasSubstr("model.merges[1]"));
  EXPECT_THAT(merges(json::parse(R"([["a", "b"], ["a", "q"]])")),
              AllOf(HasSubstr("model.merges[1]"), HasSubstr("\"q\"")));
  EXPECT_THAT(merges(json::parse(R"([["b", "a"]])")), AllOf(HasSubstr("model.merges[0]"), HasSubstr("\"ba\"")));
  EXPECT_THAT(merges(json::parse(R"([["a", "b"], ["a"]])")), HasSubstr("model.merges[1]"));
  EXPECT_THAT(merges(json::parse(R"([["a", "b", "b"]])")), HasSubstr("model.merges[0]"));
  EXPECT_THAT(merges(json::parse(R"([["a", 1]])")), HasSubstr("model.merges[0]"));
  EXPECT_THAT(merges(json::parse(R"([[["a", "b"]]])")), HasSubstr("model.merges[0]"));
  EXPECT_THAT(merges(json::array({1})), HasSubstr("model.merges[0]"));
  EXPECT_THAT(merges("a b"), HasSubstr("model.merges"));
  EXPECT_THAT(merges(json::object()), HasSubstr("model.merges"));
}

TEST_F(TokenizerFiles, UnsupportedKindsAreRefusedByName) {
  for (const char* part : {"normalizer", "pre_tokenizer", "post_processor", "decoder"}) {
    EXPECT_THAT(changed([&](json& f) {
                  f[part] = {{"type", "Frobnicate"}};
                }),
                AllOf(HasSubstr(part), HasSubstr("\"Frobnicate\"")));
    EXPECT_THAT(changed([&](json& f) { f[part] = 3; }), HasSubstr(part));
    EXPECT_THAT(changed([&](json& f) { f[part] = json::object(); }), AllOf(HasSubstr(part), HasSubstr("type")));
    EXPECT_THAT(changed([&](json& f) { f[part] = {{"type", "Sequence"}}; }), HasSubstr(part));
  }
  EXPECT_THAT(changed([](json& f) { f["normalizer"] = {{"type", "BertNormalizer"}}; }), HasSubstr("BertNormalizer"));
  EXPECT_THAT(changed([](json& f) { f["normalizer"] = {{"type", "Precompiled"}}; }), HasSubstr("Precompiled"));
  EXPECT_THAT(changed([](json& f) { f["pre_tokenizer"] = {{"type", "UnicodeScripts"}}; }), HasSubstr("UnicodeScripts"));
  EXPECT_THAT(changed([](json& f) {
                f["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Odd"}}}}};
              }),
              AllOf(HasSubstr("normalizers[1]"), HasSubstr("\"Odd\"")));
  EXPECT_THAT(changed([](json& f) { f["version"] = "2.0"; }), HasSubstr("2.0"));
  EXPECT_THAT(changed([](json& f) {
                f["normalizer"] = {{"type", "NFD"}};
                f["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "first"}};
              }),
              HasSubstr("prepend_scheme"));
}

TEST_F(TokenizerFiles, PatternsThatDifferAreRefusedByName) {
  const auto pattern = [&](const char* regex) {
    return changed([&](json& f) {
      f["pre_tokenizer"] = {
          {"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}};
    });
  };
  EXPECT_EQ(pattern(R"(\p{L}+|[^\s\d]{2,3}?|(?>a|b)++(?<=b)$|\x41\u0042)"), "");
  const std::pair<const char*, const char*> refused[] = {
      {R"((a)\1)", "\\1"},
      {R"(\Ga)", "\\G"},
      {R"(a\K)", "\\K"},
      {R"(\R)", "\\R"},
      {R"(\X)", "\\X"},
      {R"([a[b]])", "[ in"},
      {R"([a&&b])", "&&"},
      {R"([[:alpha:]])", "[ in"},
      {R"(\p{Greek})", "Greek"},
      {R"(\pL)", "\\p"},
      {R"((?i)ss)", "ss"},
      {R"((?i:fl))", "fl"},
      {R"(a(?i)b)", "(?i)"},
      {R"((?m:a))", "(?m"},
      {R"((?<name>a))", "(?<n"},
      {R"(a**)", "quantifier"},
      {R"(*a)", "quantifier"},
      {R"(a{x})", "{"},
      {R"((a)", "open group"},
      {R"(a))", ")"},
      {R"([a)", "]"},
      {R"([z-a])", "backwards"},
      {R"(a{3,2})", "backwards"},
      {R"(\)", "\\"},
      {R"([^\D])", "negated"},
      {R"(\xff)", "\\x"},
      {R"((?i:é))", "ASCII"},
      {R"((*UCP))", "(*"},
      {R"(\x{110000})", "code point"},
  };
  for (const auto& [regex, named] : refused)
    EXPECT_THAT(pattern(regex), AllOf(HasSubstr("pre_tokenizer"), HasSubstr("not supported"), HasSubstr(named)))
        << regex;
  EXPECT_THAT(pattern(text_cases::times("(?:", 5000).c_str()), HasSubstr("pre_tokenizer"));
  EXPECT_THAT(pattern("a{1,99999}"), HasSubstr("pre_tokenizer"));
  EXPECT_THAT(pattern(""), HasSubstr("pattern"));
}

TEST_F(TokenizerFiles, AddedTokensAreChecked) {
  const auto token = [&](const char* key, json value) {
    return changed([&](json& f) { f["added_tokens"][0][key] = std::move(value); });
  };
  EXPECT_THAT(token("id", 7), AllOf(HasSubstr("added_tokens[0]"), HasSubstr("7")));
  EXPECT_THAT(token("id", -1), HasSubstr("added_tokens[0]"));
  EXPECT_THAT(token("id", "3"), HasSubstr("added_tokens[0]"));
  EXPECT_THAT(token("content", 3), HasSubstr("content"));
  EXPECT_THAT(token("content", ""), HasSubstr("content"));
  EXPECT_THAT(token("content", "ab"), HasSubstr("\"ab\""));  // its id is 2
  EXPECT_THAT(token("lstrip", 1), HasSubstr("lstrip"));
  EXPECT_THAT(changed([](json& f) { f["added_tokens"][0].erase("special"); }), HasSubstr("special"));
  EXPECT_THAT(changed([](json& f) { f["added_tokens"] = 1; }), HasSubstr("added_tokens"));
  EXPECT_THAT(changed([](json& f) { f["added_tokens"][0] = 1; }), HasSubstr("added_tokens[0]"));
  EXPECT_THAT(changed([](json& f) { f["added_tokens"].push_back(f["added_tokens"][0]); }), HasSubstr("stands twice"));
  EXPECT_THAT(changed([](json& f) {
                f["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
                f["added_tokens"][0]["content"] = " ";
                f["added_tokens"][0]["normalized"] = true;
              }),
              HasSubstr("empty after normalization"));
}

TEST_F(TokenizerFiles, PostProcessorsAreChecked) {
  const auto single = [&](const char* pieces, const char* specials) {
    return changed([&](json& f) {
      f["post_processor"] = {
          {"type", "TemplateProcessing"}, {"single", json::parse(pieces)}, {"special_tokens", json::parse(specials)}};
    });
  };
  const char* const token = R"([{"SpecialToken": {"id": "x"}}, {"Sequence": {"id": "A"}}])";
  EXPECT_EQ(single(token, R"({"x": {"ids": [3]}})"), "");
  EXPECT_THAT(single(token, "{}"), HasSubstr("special_tokens"));
  EXPECT_THAT(single(token, R"({"x": {"ids": [9]}})"), HasSubstr("no token has the id 9"));
  EXPECT_THAT(single(token, R"({"x": {"ids": [-1]}})"), HasSubstr("-1"));
  EXPECT_THAT(single(token, R"({"x": {"ids": [99999999999]}})"), HasSubstr("99999999999"));
  EXPECT_THAT(single(token, R"({"x": {"ids": "3"}})"), HasSubstr("ids"));
  EXPECT_THAT(single(R"([{"Sequence": {"id": "B"}}])", "{}"), HasSubstr("\"B\""));
  EXPECT_THAT(single("[]", "{}"), HasSubstr("single"));
  EXPECT_THAT(single("[3]", "{}"), HasSubstr("single"));
}

TEST_F(TokenizerFiles, TheConfigurationBesideItIsChecked) {
  const auto config = [&](const std::string& text) {
    write("tokenizer.json", sound().dump());
    write("tokenizer_config.json", text);
    return message();
  };
  EXPECT_EQ(config(R"({"eos_token": "<x>", "chat_template": [{"name": "default", "template": "t"}]})"), "");
  EXPECT_EQ(Tokenizer::load(directory_).chat_template(), "t");
  EXPECT_EQ(config(R"({"added_tokens_decoder": {"4": {"content": "<y>"}}})"), "");
  EXPECT_EQ(Tokenizer::load(directory_).encode("<y>"), std::vector<std::int32_t>{4});
  EXPECT_THAT(config(R"({"added_tokens_decoder": {"5": {"content": "<y>"}}})"), HasSubstr("<y>"));
  EXPECT_THAT(config(R"({"added_tokens_decoder": {"x": {"content": "<y>"}}})"), HasSubstr("added_tokens_decoder"));
  EXPECT_THAT(config(R"({"added_tokens_decoder": {"99999999999": {"content": "<y>"}}})"),
              HasSubstr("added_tokens_decoder"));
  EXPECT_THAT(config(R"({"added_tokens_decoder": []})"), HasSubstr("added_tokens_decoder"));
  EXPECT_THAT(config(R"({"eos_token": 3})"), HasSubstr("eos_token"));
  EXPECT_THAT(config(R"({"chat_template": 3})"), HasSubstr("chat_template"));
  EXPECT_THAT(config("[]"), HasSubstr("tokenizer_config.json"));
  EXPECT_THAT(config("{"), HasSubstr("tokenizer_config.json"));
  EXPECT_EQ(config("{}"), "");
  write("special_tokens_map.json", R"({"eos_token": {"content": "<x>"}})");
  EXPECT_EQ(Tokenizer::load(directory_).eos_id(), 3);
  write("chat_template.jinja", "{{ from the file }}");
  EXPECT_EQ(Tokenizer::load(directory_).chat_template(), "{{ from the file }}");
  write("chat_template.jinja", "\xff");
  EXPECT_THAT(message(), HasSubstr("chat_template.jinja"));
}

// One to three random changes, most of them in the first `head` bytes.
std::string damaged(std::string text, std::size_t head, std::mt19937& random) {
  head = std::min(head, text.size());
  for (std::size_t n = 1 + random() % 3; n > 0 && !text.empty(); --n) {
    const std::size_t at = random() % (random() % 3 ? std::min(head, text.size()) : text.size());
    switch (random() % 5) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, 1 + random() % 20);
        break;
      case 2:
        text.insert(at, std::string(1 + random() % 3, "{}[]\",:0-tfn\\"[random() % 13]));
        break;
      case 3:
        text.insert(at, text.substr(random() % std::min(head, text.size()), 1 + random() % 60));
        break;
      case 4: {
        const std::size_t digit = text.find_first_of("0123456789", at);
        if (digit != text.npos) text.replace(digit, 1, random() % 2 ? "99999999999999999999" : "-7");
      }
    }
  }
  return text;
}

// Random damage: loads or is refused with a FileError.
TEST_F(TokenizerFiles, RandomDamageNeverCrashes) {
  std::mt19937 random(3);
  int refused = 0;
  for (const std::string family : {"chain", "unk", "metaspace", "qwen", "gemma", "o200k"}) {
    std::ifstream in(text_cases::folder(family) + "/tokenizer.json");
    const std::string sound_text((std::istreambuf_iterator<char>(in)), {});
    for (int round = 0; round < (family == "chain" || family == "unk" ? 150 : 60); ++round) {
      write("tokenizer.json", damaged(sound_text, 4000, random));
      try {
        Tokenizer::load(directory_).encode("the yes KEEP 12 caf\u00e9 [PAD] \xff");
      } catch (const FileError& error) {
        EXPECT_THAT(error.what(), HasSubstr(directory_));
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 200);
}

TEST_F(TokenizerFiles, RandomDamageOfTheFilesBesideItNeverCrashes) {
  std::mt19937 random(4);
  write("tokenizer.json", sound().dump());
  const std::string config =
      R"({"bos_token": {"content": "<x>", "lstrip": false}, "eos_token": "<x>", "pad_token": null, "tokenizer_class": "Qwen2Tokenizer",
      "added_tokens_decoder": {"3": {"content": "<x>", "special": true, "normalized": false}}, "chat_template":
      [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]})";
  const std::string map =
      R"({"eos_token": {"content": "<x>", "single_word": false}, "additional_special_tokens": ["<x>"]})";
  for (const auto& [name, text] :
       {std::pair("tokenizer_config.json", config), std::pair("special_tokens_map.json", map)}) {
    int refused = 0;
    for (int round = 0; round < 400; ++round) {
      write(name, damaged(text, text.size(), random));
      try {
        const Tokenizer tokenizer = Tokenizer::load(directory_);
        tokenizer.eos_id();
      } catch (const FileError& error) {
        EXPECT_THAT(error.what(), HasSubstr(directory_));
        ++refused;
      }
    }
    EXPECT_GT(refused, 100) << name;
    std::filesystem::remove(directory_ + "/" + name);
  }
}

}  // namespace
}  // namespace megatoken
