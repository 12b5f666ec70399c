// JSON of files that come from outside: bounded depth, no duplicate keys, errors that name file and line.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/dtype.h"

namespace megatoken {

// Parses one JSON value. `where` (a path, or "path:line") begins every message. FileError for malformed text, a key
// that stands twice in one object, or nesting deeper than max_depth.
nlohmann::json parse_json(std::string_view text, const std::string& where, int64 max_depth = 64);

// read_text_file + parse_json; a UTF-8 byte order mark is skipped.
nlohmann::json read_json_file(const std::string& path, int64 limit = int64{1} << 30);

// The parser's own words about an error, without its prefix, fit for one line. offset: how many bytes it had read.
std::string json_error_text(const nlohmann::json::exception& error);

// 1-based line of a byte offset.
int64 line_of(std::string_view text, int64 offset);

// value[key] with its type checked, or a FileError naming `where` and the key.
const nlohmann::json& require(const nlohmann::json& value, const char* key, nlohmann::json::value_t type,
                              const std::string& where);

}  // namespace megatoken
