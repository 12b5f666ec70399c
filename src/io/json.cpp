#include "io/json.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "io/file.h"

namespace megatoken {

std::string json_error_text(const nlohmann::json::exception& error) {
  std::string_view text = error.what();
  if (const auto at = text.find("] "); text.starts_with("[json.exception") && at != text.npos)
    text.remove_prefix(at + 2);
  // "parse error at line 1, column 8: ..." counts lines of the parsed piece; ours are those of the file.
  if (const auto at = text.find(": "); text.starts_with("parse error at") && at != text.npos)
    text.remove_prefix(at + 2);
  return printable(text, 240);
}

int64 line_of(std::string_view text, int64 offset) {
  const auto end = text.begin() + std::clamp<int64>(offset, 0, static_cast<int64>(text.size()));
  return 1 + std::count(text.begin(), end, '\n');
}

nlohmann::json parse_json(std::string_view text, const std::string& where, int64 max_depth) {
  using Event = nlohmann::json::parse_event_t;
  // The parser takes a NUL for the end of its input.
  if (const auto nul = text.find('\0'); nul != text.npos)
    throw FileError("{}: line {}: a NUL byte, which JSON doesn't allow", where, line_of(text, static_cast<int64>(nul)));
  std::vector<std::unordered_set<std::string>> keys;
  const auto guard = [&](int depth, Event event, nlohmann::json& parsed) {
    if (depth > max_depth) throw FileError("{}: nested deeper than {} levels", where, max_depth);
    switch (event) {
      case Event::object_start:
        keys.emplace_back();
        break;
      case Event::object_end:
        keys.pop_back();
        break;
      case Event::key: {
        const auto& key = parsed.get_ref<const std::string&>();
        if (!keys.back().insert(key).second) throw FileError("{}: key \"{}\" stands twice", where, printable(key));
        break;
      }
      default:
        break;
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text.begin(), text.end(), guard);
  } catch (const nlohmann::json::parse_error& error) {
    throw FileError("{}: line {}: {}", where, line_of(text, static_cast<int64>(error.byte) - 1),
                    json_error_text(error));
  } catch (const nlohmann::json::exception& error) {
    throw FileError("{}: {}", where, json_error_text(error));
  }
}

nlohmann::json read_json_file(const std::string& path, int64 limit) {
  const std::string content = read_text_file(path, limit);
  std::string_view text = content;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  return parse_json(text, printable(path, 4096));
}

const nlohmann::json& require(const nlohmann::json& value, const char* key, nlohmann::json::value_t type,
                              const std::string& where) {
  if (!value.is_object()) throw FileError("{}: expected an object with \"{}\"", where, key);
  const auto found = value.find(key);
  if (found == value.end()) throw FileError("{}: \"{}\" is missing", where, key);
  using Type = nlohmann::json::value_t;
  const auto integer = [](Type t) { return t == Type::number_integer || t == Type::number_unsigned; };
  if (found->type() != type && !(integer(found->type()) && (integer(type) || type == Type::number_float)))
    throw FileError("{}: \"{}\" has the wrong type ({})", where, key, found->type_name());
  return *found;
}

}  // namespace megatoken
