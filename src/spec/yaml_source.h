// YAML text as JSON values with the line of every key. The only user of yaml-cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace megatoken {

struct YamlValue {
  struct Member;
  nlohmann::ordered_json json;  // the whole value
  std::vector<Member> members;  // of a map, in order; empty otherwise
  bool is_map = false;
  int line = 0;  // from 1
};
struct YamlValue::Member {
  std::string key;
  int line = 0;
  YamlValue value;
};

// Throws ConfigError "SOURCE:LINE: ..." for malformed text, duplicate keys, several documents, foreign tags, aliases
// that grow beyond bounds. Empty text is null.
YamlValue parse_yaml(const std::string& text, const std::string& source);

}  // namespace megatoken
