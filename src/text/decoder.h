// Decoders of tokenizer.json: token strings back into text, for display.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace megatoken {

class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

class Decoder {
 public:
  Decoder() = default;  // joins tokens with spaces, as the package does without a decoder
  // ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, Sequence of these; others are a FileError naming `where`.
  static Decoder parse(const nlohmann::json& part, const std::string& where);
  std::string decode(std::vector<std::string> tokens) const;

 private:
  static void add(const nlohmann::json& part, const std::string& where, Decoder& to);
  std::vector<std::shared_ptr<const DecoderStep>> steps_;
  bool joins_ = true;
};

}  // namespace megatoken
