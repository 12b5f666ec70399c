#include "text/decoder.h"

#include "base/dtype.h"
#include "text/byte_alphabet.h"
#include "text/json_checks.h"
#include "text/split_regex.h"
#include "text/unicode.h"

namespace megatoken {
namespace {

constexpr const char* kKnown = "ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, Sequence";
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

class ByteLevelDecoder final : public DecoderStep {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string bytes, mapped;
    for (const std::string& token : tokens) {
      mapped.clear();
      bool all = true;
      for (std::size_t at = 0; at < token.size() && all;) {
        const int byte = ByteAlphabet::get().byte(unicode::decode(token, at));
        all = byte >= 0;
        mapped += static_cast<char>(byte);
      }
      bytes += all ? mapped : token;
    }
    int64 replaced = 0;
    tokens.assign(1, unicode::replace_invalid_utf8(bytes, replaced));
  }
};

class ByteFallbackDecoder final : public DecoderStep {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::vector<std::string> out;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (unicode::valid_utf8(bytes))
        out.push_back(bytes);
      else
        out.insert(out.end(), bytes.size(), std::string(kReplacement));
      bytes.clear();
    };
    for (std::string& token : tokens) {
      const int byte = byte_of(token);
      if (byte >= 0) {
        bytes += static_cast<char>(byte);
        continue;
      }
      flush();
      out.push_back(std::move(token));
    }
    flush();
    tokens = std::move(out);
  }

 private:
  static int byte_of(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
    const auto digit = [](char c) {
      return c >= '0' && c <= '9'   ? c - '0'
             : c >= 'a' && c <= 'f' ? c - 'a' + 10
             : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                    : -1;
    };
    if (token[3] == '+') return digit(token[4]);  // Rust's number parser takes a sign
    const int high = digit(token[3]), low = digit(token[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
  }
};

class FuseDecoder final : public DecoderStep {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string all;
    for (const std::string& token : tokens) all += token;
    tokens.assign(1, std::move(all));
  }
};

class StripDecoder final : public DecoderStep {
 public:
  StripDecoder(std::string content, int64 start, int64 stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      std::string_view text = token;
      for (int64 i = 0; i < start_ && text.starts_with(content_); ++i) text.remove_prefix(content_.size());
      for (int64 i = 0; i < stop_ && text.ends_with(content_); ++i) text.remove_suffix(content_.size());
      token = std::string(text);
    }
  }

 private:
  std::string content_;
  int64 start_, stop_;
};

class ReplaceDecoder final : public DecoderStep {
 public:
  ReplaceDecoder(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens)
      for (std::size_t at = 0; (at = token.find(from_, at)) != token.npos; at += to_.size())
        token.replace(at, from_.size(), to_);
  }

 private:
  std::string from_, to_;
};

class MetaspaceDecoder final : public DecoderStep {
 public:
  MetaspaceDecoder(std::string replacement, bool prepends)
      : replacement_(std::move(replacement)), prepends_(prepends) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::string_view to = i == 0 && prepends_ ? "" : " ";
      for (std::size_t at = 0; (at = tokens[i].find(replacement_, at)) != std::string::npos; at += to.size())
        tokens[i].replace(at, replacement_.size(), to);
    }
  }

 private:
  std::string replacement_;
  bool prepends_;
};

int64 count_field(const nlohmann::json& part, const char* key, const std::string& where) {
  const nlohmann::json& value = field(part, key, where);
  if (!value.is_number_integer() || value < 0 || value > 1000000)
    throw FileError("{}: \"{}\" must be a small number", where, key);
  return value.get<int64>();
}

}  // namespace

void Decoder::add(const nlohmann::json& part, const std::string& where, Decoder& to) {
  const std::string& kind = kind_of(part, where);
  if (kind == "Sequence") {
    const nlohmann::json& list = field(part, "decoders", where);
    if (!list.is_array()) throw FileError("{}: \"decoders\" must be an array", where);
    for (std::size_t i = 0; i < list.size(); ++i) add(list[i], fmt::format("{}.decoders[{}]", where, i), to);
  } else if (kind == "ByteLevel") {
    to.steps_.push_back(std::make_shared<ByteLevelDecoder>());
  } else if (kind == "ByteFallback") {
    to.steps_.push_back(std::make_shared<ByteFallbackDecoder>());
  } else if (kind == "Fuse") {
    to.steps_.push_back(std::make_shared<FuseDecoder>());
  } else if (kind == "Strip") {
    const std::string& content = string_field(part, "content", where);
    if (content.empty()) throw FileError("{}: \"content\" is empty", where);
    to.steps_.push_back(
        std::make_shared<StripDecoder>(content, count_field(part, "start", where), count_field(part, "stop", where)));
  } else if (kind == "Replace") {
    PatternField pattern = pattern_field(part, where);
    if (pattern.regex) throw FileError("{}: a regular expression in a decoder is not supported", where);
    to.steps_.push_back(
        std::make_shared<ReplaceDecoder>(std::move(pattern.text), string_field(part, "content", where)));
  } else if (kind == "Metaspace") {
    const std::string& replacement = string_field(part, "replacement", where);
    if (replacement.empty()) throw FileError("{}: \"replacement\" is empty", where);
    const auto scheme = part.find("prepend_scheme");
    to.steps_.push_back(std::make_shared<MetaspaceDecoder>(
        replacement, scheme == part.end() ? bool_field(part, "add_prefix_space", where, true) : *scheme != "never"));
  } else {
    unknown_kind(kind, where, kKnown);
  }
}

Decoder Decoder::parse(const nlohmann::json& part, const std::string& where) {
  Decoder decoder;
  if (part.is_null()) return decoder;
  decoder.joins_ = false;
  add(part, where, decoder);
  return decoder;
}

std::string Decoder::decode(std::vector<std::string> tokens) const {
  for (const auto& step : steps_) step->apply(tokens);
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (joins_ && i > 0) text += ' ';
    text += tokens[i];
  }
  return text;
}

}  // namespace megatoken
