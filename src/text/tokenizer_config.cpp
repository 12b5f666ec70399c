#include "text/tokenizer_config.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "io/json.h"
#include "text/json_checks.h"
#include "text/unicode.h"

namespace megatoken {
namespace {

using Json = nlohmann::json;

// A token as a string or as {"content": ...}.
std::optional<std::string> token_text(const Json& config, const char* key, const std::string& where) {
  const auto at = config.find(key);
  if (at == config.end() || at->is_null()) return std::nullopt;
  if (at->is_string()) return at->get<std::string>();
  if (at->is_object()) return string_field(*at, "content", where + ": " + key);
  throw FileError("{}: \"{}\" must be a string or an object with \"content\"", where, key);
}

AddedToken added_token(const Json& item, const std::string& where) {
  if (!item.is_object()) throw FileError("{}: expected an object", where);
  AddedToken token;
  token.content = string_field(item, "content", where);
  if (token.content.empty()) throw FileError("{}: \"content\" is empty", where);
  token.single_word = bool_field(item, "single_word", where, false);
  token.lstrip = bool_field(item, "lstrip", where, false);
  token.rstrip = bool_field(item, "rstrip", where, false);
  token.special = bool_field(item, "special", where, false);
  token.normalized = bool_field(item, "normalized", where, !token.special);
  return token;
}

// Defaults of transformers' tokenizer classes.
void class_defaults(const std::string& name, TokenizerConfig& to) {
  const auto is = [&](std::string_view stem) { return name == stem || name == std::string(stem) + "Fast"; };
  if (is("Qwen2Tokenizer")) to.eos = to.pad = to.unk = "<|endoftext|>";
  if (is("GPT2Tokenizer")) to.bos = to.eos = to.unk = "<|endoftext|>";
  if (is("LlamaTokenizer")) to.bos = "<s>", to.eos = "</s>", to.unk = "<unk>";
  if (is("GemmaTokenizer")) to.bos = "<bos>", to.eos = "<eos>", to.pad = "<pad>", to.unk = "<unk>";
}

void read_named(const Json& config, const std::string& where, TokenizerConfig& to) {
  const auto set = [&](const char* key, std::optional<std::string>& token) {
    if (config.contains(key)) token = token_text(config, key, where);
  };
  set("bos_token", to.bos);
  set("eos_token", to.eos);
  set("pad_token", to.pad);
  set("unk_token", to.unk);
}

void read_added(const Json& list, const std::string& where, TokenizerConfig& to) {
  if (!list.is_object()) throw FileError("{}: \"added_tokens_decoder\" must be an object", where);
  for (const auto& [key, item] : list.items()) {
    const std::string here = fmt::format("{}: added_tokens_decoder[\"{}\"]", where, printable(key));
    AddedToken token = added_token(item, here);
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token.id);
    if (error != std::errc() || end != key.data() + key.size() || token.id < 0 || token.id >= Vocabulary::kIdLimit)
      throw FileError("{}: the key must be an id in [0, {})", here, Vocabulary::kIdLimit);
    to.tokens.push_back(std::move(token));
  }
  std::sort(to.tokens.begin(), to.tokens.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
}

void read_chat_template(const Json& config, const std::string& where, TokenizerConfig& to) {
  const auto at = config.find("chat_template");
  if (at == config.end() || at->is_null()) return;
  if (at->is_string()) {
    to.chat_template = at->get<std::string>();
    return;
  }
  if (!at->is_array()) throw FileError("{}: \"chat_template\" must be a string or an array", where);
  for (const Json& item : *at) {
    if (!item.is_object()) throw FileError("{}: \"chat_template\" has an entry that is no object", where);
    if (string_field(item, "name", where) == "default") to.chat_template = string_field(item, "template", where);
  }
}

}  // namespace

TokenizerConfig read_tokenizer_config(const std::string& directory) {
  namespace fs = std::filesystem;
  TokenizerConfig config;
  const auto path = [&](const char* name) { return (fs::path(directory) / name).string(); };
  const auto object = [](const std::string& file) {
    Json value = read_json_file(file);
    if (!value.is_object()) throw FileError("{}: expected an object", printable(file, 4096));
    return value;
  };
  Json main = Json::object();
  const std::string file = path("tokenizer_config.json"), where = printable(file, 4096);
  if (fs::exists(file)) main = object(file);
  if (main.contains("tokenizer_class") && main["tokenizer_class"].is_string())
    class_defaults(main["tokenizer_class"].get<std::string>(), config);
  read_named(main, where, config);
  if (main.contains("added_tokens_decoder")) {
    read_added(main["added_tokens_decoder"], where, config);
  } else if (const std::string map = path("special_tokens_map.json"); fs::exists(map)) {
    read_named(object(map), printable(map, 4096), config);
  }
  read_chat_template(main, where, config);
  if (const std::string jinja = path("chat_template.jinja"); fs::exists(jinja)) {
    std::string text = read_text_file(jinja);
    if (!unicode::valid_utf8(text)) throw FileError("{}: not valid UTF-8", printable(jinja, 4096));
    config.chat_template = std::move(text);
  }
  return config;
}

}  // namespace megatoken
