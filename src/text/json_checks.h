// Small checked readers for the parts of tokenizer.json; every failure is a FileError naming the place.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "io/file.h"

namespace megatoken {

// A part that may be absent: null then.
inline const nlohmann::json& part_of(const nlohmann::json& root, const char* key) {
  static const nlohmann::json kNull;
  const auto at = root.find(key);
  return at == root.end() ? kNull : *at;
}

inline const nlohmann::json& field(const nlohmann::json& part, const char* key, const std::string& where) {
  const auto at = part.find(key);
  if (at == part.end()) throw FileError("{}: \"{}\" is missing", where, key);
  return *at;
}

inline bool bool_field(const nlohmann::json& part, const char* key, const std::string& where) {
  const nlohmann::json& value = field(part, key, where);
  if (!value.is_boolean()) throw FileError("{}: \"{}\" must be true or false", where, key);
  return value.get<bool>();
}

inline bool bool_field(const nlohmann::json& part, const char* key, const std::string& where, bool absent) {
  const auto at = part.find(key);
  return at == part.end() || at->is_null() ? absent : bool_field(part, key, where);
}

inline const std::string& string_field(const nlohmann::json& part, const char* key, const std::string& where) {
  const nlohmann::json& value = field(part, key, where);
  if (!value.is_string()) throw FileError("{}: \"{}\" must be a string", where, key);
  return value.get_ref<const std::string&>();
}

// The `type` of a part.
inline const std::string& kind_of(const nlohmann::json& part, const std::string& where) {
  if (!part.is_object()) throw FileError("{}: expected an object with a \"type\"", where);
  return string_field(part, "type", where);
}

[[noreturn]] inline void unknown_kind(const std::string& kind, const std::string& where, const char* known) {
  throw FileError("{}: the kind \"{}\" is not supported (supported: {})", where, printable(kind), known);
}

// {"String": ...} or {"Regex": ...} of Split and Replace.
struct PatternField {
  bool regex;
  std::string text;
};

inline PatternField pattern_field(const nlohmann::json& part, const std::string& where) {
  const nlohmann::json& pattern = field(part, "pattern", where);
  if (!pattern.is_object() || pattern.size() != 1 || !pattern.begin()->is_string() ||
      (pattern.begin().key() != "String" && pattern.begin().key() != "Regex"))
    throw FileError("{}: \"pattern\" must be {{\"String\": ...}} or {{\"Regex\": ...}}", where);
  PatternField result{pattern.begin().key() == "Regex", pattern.begin()->get<std::string>()};
  if (result.text.empty()) throw FileError("{}: \"pattern\" is empty", where);
  return result;
}

}  // namespace megatoken
