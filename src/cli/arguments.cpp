#include "cli/arguments.h"

#include <algorithm>

#include "base/error.h"
#include "spec/config_scalar.h"
#include "spec/run_config_keys.h"

namespace megatoken {
namespace {

bool is_option(const std::string& token) { return token.size() > 2 && token.starts_with("--"); }

bool names_yaml(const std::string& token) { return token.ends_with(".yaml") || token.ends_with(".yml"); }

// How many of the tokens after a key belong to it.
std::size_t count_values(const KeyInfo& row, const std::vector<std::string>& tokens, std::size_t next) {
  std::size_t end = next;
  while (end < tokens.size() && !is_option(tokens[end])) ++end;
  const std::size_t available = end - next;
  if (available == 0) return 0;
  const std::string& first = tokens[next];
  switch (row.type) {
    case ValueType::flag:
      return parse_flag(first) || first == "null" || first == "none" || first == "None" ? 1 : 0;
    case ValueType::any:  // a switch, a value or several; a configuration file that follows isn't one of them
    case ValueType::list: {
      std::size_t count = 0;
      while (count < available && !names_yaml(tokens[next + count])) ++count;
      return count;
    }
    default:
      return 1;
  }
}

}  // namespace

SplitArguments split_arguments(const std::vector<std::string>& arguments, const std::vector<std::string>& own_options) {
  SplitArguments result;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& token = arguments[i];
    if (!is_option(token)) {
      result.others.push_back(token);
      continue;
    }
    const auto equals = token.find('=');
    const std::string name = token.substr(2, equals == std::string::npos ? equals : equals - 2);
    std::string plain = name;
    std::replace(plain.begin(), plain.end(), '-', '_');
    if (std::find(own_options.begin(), own_options.end(), plain) != own_options.end()) {
      std::string own = token;
      std::replace(own.begin() + 2, own.begin() + 2 + static_cast<std::ptrdiff_t>(name.size()), '-', '_');
      result.others.push_back(own);
      continue;
    }
    const KeyInfo* row = find_key(name);
    if (row == nullptr && plain.starts_with("no_") && equals == std::string::npos) {
      const KeyInfo* positive = find_key(plain.substr(3));
      if (positive != nullptr && (positive->type == ValueType::flag || positive->type == ValueType::any)) {
        result.overrides.push_back({plain.substr(3), {"false"}});
        continue;
      }
    }
    if (row == nullptr) {
      const std::string nearest = nearest_key(name);
      throw ConfigError("--{}: unknown option{}", name,
                        nearest.empty() ? "; --help and --help-keys list them" : "; did you mean --" + nearest + "?");
    }
    KeyOverride item{name, {}};
    if (equals != std::string::npos) {
      item.values.push_back(token.substr(equals + 1));
    } else {
      const std::size_t count = count_values(*row, arguments, i + 1);
      for (std::size_t k = 0; k < count; ++k) item.values.push_back(arguments[++i]);
    }
    result.overrides.push_back(std::move(item));
  }
  return result;
}

}  // namespace megatoken
