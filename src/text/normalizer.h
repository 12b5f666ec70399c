// Normalizers of tokenizer.json.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace megatoken {

// One step of text to text. Valid UTF-8 in and out; thread-safe.
class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  // Writes the result to out (empty at entry) and returns true, or returns false when the text stays as it is.
  virtual bool apply(std::string_view text, std::string& out) const = 0;
  // Every character of the result stands for the one at the same place of the input.
  virtual bool one_to_one() const { return false; }
};

class Normalizer {
 public:
  Normalizer() = default;  // changes nothing
  // NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Nmt, Prepend, Replace, ByteLevel, Sequence of these; others
  // are a FileError naming `where` and the kind.
  static Normalizer parse(const nlohmann::json& part, const std::string& where);

  bool identity() const { return steps_.empty(); }
  bool one_to_one() const;
  // The normalized text: `text` itself or a view of storage.
  std::string_view apply(std::string_view text, std::string& storage) const;

 private:
  static void add(const nlohmann::json& part, const std::string& where, Normalizer& to);
  std::vector<std::shared_ptr<const NormalizerStep>> steps_;
};

}  // namespace megatoken
