#include "cli/help_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "spec/run_config_keys.h"

namespace megatoken {
namespace {

constexpr std::pair<KeyGroup, std::string_view> kGroups[] = {{KeyGroup::model, "Model"},
                                                             {KeyGroup::data, "Data"},
                                                             {KeyGroup::training, "Training"},
                                                             {KeyGroup::saving, "Evaluation, logging and checkpoints"},
                                                             {KeyGroup::parallel, "Ranks and sharding"},
                                                             {KeyGroup::planner, "Planner"}};

std::string_view name_of(ValueType type) {
  switch (type) {
    case ValueType::text:
      return "text";
    case ValueType::choice:
      return "word";
    case ValueType::flag:
      return "true / false";
    case ValueType::integer:
      return "whole number";
    case ValueType::number:
      return "number";
    case ValueType::size:
      return "size";
    case ValueType::scalar:
      return "word or number";
    case ValueType::list:
      return "list";
    case ValueType::map:
    case ValueType::container:
      return "dictionary";
    case ValueType::any:
      return "any";
  }
  return "";
}

std::vector<const KeyInfo*> rows_of(KeyClass use, KeyGroup group) {
  std::vector<const KeyInfo*> rows;
  for (const KeyInfo& row : run_config_keys())
    if (row.use == use && row.group == group) rows.push_back(&row);
  return rows;
}

// "0|false" as people read it: 0 or false.
std::string harmless_text(std::string_view list) {
  std::string result(list);
  for (auto bar = result.find('|'); bar != std::string::npos; bar = result.find('|')) result.replace(bar, 1, ", ");
  return result;
}

// Accepted and refused keys with the same reason stand in one line.
std::vector<std::pair<std::string_view, std::vector<const KeyInfo*>>> by_reason(KeyClass use) {
  std::vector<std::pair<std::string_view, std::vector<const KeyInfo*>>> result;
  for (const KeyInfo& row : run_config_keys()) {
    if (row.use != use) continue;
    const auto found =
        std::find_if(result.begin(), result.end(), [&](const auto& item) { return item.first == row.help; });
    if (found != result.end())
      found->second.push_back(&row);
    else
      result.push_back({row.help, {&row}});
  }
  return result;
}

std::string wrapped(std::string_view text, std::size_t indent, std::size_t width = 100) {
  std::string result, line(indent, ' ');
  while (!text.empty()) {
    const auto space = text.find(' ');
    const std::string_view word = text.substr(0, space);
    if (line.size() > indent && line.size() + word.size() + 1 > width) {
      result += line + "\n";
      line.assign(indent, ' ');
    }
    if (line.size() > indent) line += ' ';
    line += word;
    text = space == std::string_view::npos ? std::string_view{} : text.substr(space + 1);
  }
  return result + line + "\n";
}

std::vector<std::string_view> split(std::string_view list, char separator) {
  std::vector<std::string_view> parts;
  while (!list.empty()) {
    const auto end = list.find(separator);
    parts.push_back(list.substr(0, end));
    list = end == std::string_view::npos ? std::string_view{} : list.substr(end + 1);
  }
  return parts;
}

std::string_view name_of(KeyClass use) {
  switch (use) {
    case KeyClass::honoured:
      return "honoured";
    case KeyClass::accepted:
      return "accepted";
    case KeyClass::refused:
      return "refused";
  }
  return "";
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) result += c == '|' ? "\\|" : std::string(1, c);
  return result;
}

}  // namespace

std::string keys_as_text() {
  std::string text = "Keys of CONFIG.yaml and of the command line (--key value). Names are TRL's and accelerate's.\n";
  for (const auto& [group, title] : kGroups) {
    text += fmt::format("\n{}\n", title);
    for (const KeyInfo* row : rows_of(KeyClass::honoured, group)) {
      text += fmt::format("  {}  ({}{}{})\n", row->name, name_of(row->type),
                          row->default_value.empty() ? "" : ", default ", row->default_value);
      if (!row->aliases.empty()) text += wrapped("also " + std::string(row->aliases), 6);
      if (!row->help.empty()) text += wrapped(row->help, 6);
    }
  }
  const auto list = [&](KeyClass use) {
    for (const auto& [reason, rows] : by_reason(use)) {
      std::string names;
      for (const KeyInfo* row : rows) {
        names += (names.empty() ? "" : ", ") + std::string(row->name);
        if (!row->harmless.empty()) names += fmt::format(" (but {})", harmless_text(row->harmless));
      }
      text += wrapped(names, 2) + wrapped(reason, 6);
    }
  };
  text += "\nAccepted, no effect on the result (one printed line each)\n";
  list(KeyClass::accepted);
  text += "\nRefused (null, and the value in brackets, are fine)\n";
  list(KeyClass::refused);
  return text;
}

std::string keys_as_markdown() {
  std::string text;
  for (const auto& [group, title] : kGroups) {
    text += fmt::format("### {}\n\n| key | value | default | meaning |\n|---|---|---|---|\n", title);
    for (const KeyInfo* row : rows_of(KeyClass::honoured, group)) {
      std::string names = fmt::format("`{}`", row->name);
      for (const std::string_view alias : split(row->aliases, ' ')) names += fmt::format(", `{}`", alias);
      const std::string value = row->default_value.empty() ? "" : fmt::format("`{}`", row->default_value);
      text += fmt::format("| {} | {} | {} | {} |\n", names, name_of(row->type), value, escaped(row->help));
    }
    text += "\n";
  }
  text += "### Accepted, no effect on the result\n\nOne printed line each.\n\n| keys | why |\n|---|---|\n";
  for (const auto& [reason, rows] : by_reason(KeyClass::accepted)) {
    std::string names;
    for (const KeyInfo* row : rows) names += fmt::format("{}`{}`", names.empty() ? "" : ", ", row->name);
    text += fmt::format("| {} | {} |\n", names, escaped(reason));
  }
  text += "\n### Refused\n\n`null`, an empty list and the values of the second column are fine.\n\n";
  text += "| key | fine | why it is refused otherwise |\n|---|---|---|\n";
  for (const KeyInfo& row : run_config_keys()) {
    if (row.use != KeyClass::refused) continue;
    std::string fine = harmless_text(row.harmless);
    if (!fine.empty()) fine = "`" + fine + "`";
    text += fmt::format("| `{}` | {} | {} |\n", row.name, fine, escaped(row.help));
  }
  return text;
}

std::string keys_as_json() {
  auto list = nlohmann::ordered_json::array();
  for (const KeyInfo& row : run_config_keys()) {
    const auto group =
        std::find_if(std::begin(kGroups), std::end(kGroups), [&](const auto& g) { return g.first == row.group; });
    list.push_back({{"name", row.name},
                    {"use", name_of(row.use)},
                    {"group", group->second},
                    {"type", name_of(row.type)},
                    {"default", row.default_value},
                    {"aliases", split(row.aliases, ' ')},
                    {"fine", split(row.harmless, '|')},
                    {"meaning", row.help}});
  }
  return list.dump(1) + "\n";
}

}  // namespace megatoken
