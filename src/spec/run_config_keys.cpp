#include "spec/run_config_keys.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "spec/config_scalar.h"

namespace megatoken {
namespace {

std::vector<KeyInfo> join_rows() {
  const std::pair<std::span<const KeyInfo>, KeyGroup> parts[] = {
      {model_key_rows(), KeyGroup::model},       {data_key_rows(), KeyGroup::data},
      {training_key_rows(), KeyGroup::training}, {saving_key_rows(), KeyGroup::saving},
      {parallel_key_rows(), KeyGroup::parallel}, {planner_key_rows(), KeyGroup::planner}};
  std::vector<KeyInfo> rows;
  for (const auto& [part, group] : parts)
    for (KeyInfo row : part) {
      row.group = group;
      rows.push_back(row);
    }
  return rows;
}

// Calls f with each of the space-separated names.
template <typename F>
void for_each_alias(std::string_view names, F f) {
  while (!names.empty()) {
    const auto space = names.find(' ');
    f(names.substr(0, space));
    names = space == std::string_view::npos ? std::string_view{} : names.substr(space + 1);
  }
}

using Index = std::unordered_map<std::string_view, const KeyInfo*>;
const Index& key_index() {
  static const Index index = [] {
    Index result;
    for (const KeyInfo& row : run_config_keys()) {
      const bool first = result.emplace(row.name, &row).second;
      check(first, "the key {} has two rows", row.name);
    }
    for (const KeyInfo& row : run_config_keys())
      for_each_alias(row.aliases, [&](std::string_view alias) {
        check(result.emplace(alias, &row).second, "the key {} has two rows", alias);
      });
    return result;
  }();
  return index;
}

const KeyInfo* exact(std::string_view name) {
  const auto found = key_index().find(name);
  return found == key_index().end() ? nullptr : found->second;
}

std::string with_underscores(std::string_view name) {
  std::string result(name);
  std::replace(result.begin(), result.end(), '-', '_');
  return result;
}

// Rows inside a container, for a child as it is written there.
const KeyInfo* child_of(const KeyInfo& parent, std::string_view child) {
  const std::string inside(child);
  if (const KeyInfo* row = exact(std::string(parent.name) + "." + inside)) return row;
  if (parent.name == "fsdp_config") return exact(child.starts_with("fsdp_") ? inside : "fsdp_" + inside);
  if (parent.name == "parallelism_config")
    return exact(child.starts_with("parallelism_config_") ? inside : "parallelism_config_" + inside);
  return nullptr;
}

// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

}  // namespace

std::span<const KeyInfo> run_config_keys() {
  static const std::vector<KeyInfo> rows = join_rows();
  return rows;
}

const KeyInfo* find_key(std::string_view name) {
  const std::string key = with_underscores(name);
  if (const KeyInfo* row = exact(key)) return row;
  const auto dot = key.find('.');
  if (dot == std::string::npos) return nullptr;
  const KeyInfo* parent = exact(std::string_view(key).substr(0, dot));
  if (parent != nullptr && parent->type == ValueType::container)
    if (const KeyInfo* row = child_of(*parent, std::string_view(key).substr(dot + 1))) return row;
  // A free map, maybe inside a container: everything before some dot names it.
  for (auto end = key.rfind('.'); end != std::string::npos && end > 0; end = key.rfind('.', end - 1)) {
    const std::string head = key.substr(0, end);
    const KeyInfo* row = exact(head);
    if (row == nullptr && head.find('.') != std::string::npos) {
      const KeyInfo* outer = exact(head.substr(0, head.find('.')));
      if (outer != nullptr && outer->type == ValueType::container)
        row = child_of(*outer, head.substr(head.find('.') + 1));
    }
    if (row != nullptr && row->type == ValueType::map) return row;
  }
  return nullptr;
}

std::string canonical_key(std::string_view name) {
  const KeyInfo* row = find_key(name);
  return row != nullptr ? std::string(row->name) : with_underscores(name);
}

std::string nearest_key(std::string_view name) {
  const std::string key = with_underscores(name);
  const auto dot = key.rfind('.');
  const std::string_view last = std::string_view(key).substr(dot == std::string::npos ? 0 : dot + 1);
  std::size_t least = std::max<std::size_t>(2, last.size() / 3) + 1;
  std::string best;
  const auto consider = [&](std::string_view candidate) {
    const auto candidate_dot = candidate.rfind('.');
    const std::string_view short_name =
        candidate.substr(candidate_dot == std::string_view::npos ? 0 : candidate_dot + 1);
    const bool same_place = candidate_dot == std::string_view::npos ||
                            (dot != std::string::npos && candidate.substr(0, candidate_dot) == key.substr(0, dot));
    if (!same_place) return;
    const std::size_t distance = edit_distance(last, short_name);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  };
  for (const KeyInfo& row : run_config_keys()) {
    consider(row.name);
    for_each_alias(row.aliases, consider);
  }
  return best;
}

void KeyValue::expected(std::string_view what) const {
  std::string shown = json_.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (shown.size() > 80) shown = shown.substr(0, 77) + "...";
  throw ConfigError("{} must be {}, not {}", place_, what, shown);
}

void KeyValue::fail_with(const std::string& message) const {
  constexpr std::size_t kMost = 400;
  throw ConfigError("{}: {}", place_, one_line(message, kMost));
}

bool KeyValue::flag() const {
  if (json_.is_boolean()) return json_.get<bool>();
  if (json_.is_string())  // accelerate's files quote them: 'true'
    if (const auto value = parse_flag(json_.get<std::string>())) return *value;
  expected("true or false");
}

int64 KeyValue::integer(int64 smallest, int64 largest) const {
  const Json value = json_.is_string() ? resolve_scalar(json_.get<std::string>()) : json_;
  int64 result = 0;
  if (value.is_number_integer()) {
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))
      expected("a whole number");
    result = value.get<int64>();
  } else if (value.is_number_float() && std::abs(value.get<double>()) < 1e15 &&
             value.get<double>() == std::floor(value.get<double>())) {
    result = static_cast<int64>(value.get<double>());
  } else {
    expected("a whole number");
  }
  if (result < smallest) expected(fmt::format("a whole number of at least {}", smallest));
  if (result > largest) expected(fmt::format("a whole number of at most {}", largest));
  return result;
}

double KeyValue::number() const {
  const Json value = json_.is_string() ? resolve_scalar(json_.get<std::string>()) : json_;
  if (!value.is_number() || !std::isfinite(value.get<double>())) expected("a number");
  return value.get<double>();
}

double KeyValue::number(double smallest, double largest) const {
  const double result = number();
  if (!(result >= smallest && result <= largest)) expected(fmt::format("a number from {} to {}", smallest, largest));
  return result;
}

std::string KeyValue::text() const {
  if (json_.is_null()) return "";
  if (!json_.is_string()) expected(json_.is_structured() ? "text" : "text (quote it)");
  return json_.get<std::string>();
}

int64 KeyValue::bytes() const {
  std::optional<int64> result;
  if (json_.is_number_integer())
    result = integer(1, int64{1} << 60);
  else if (json_.is_string())
    result = parse_bytes(json_.get<std::string>());
  if (!result) expected("a size such as 24GiB, 80GB or a number of bytes");
  return *result;
}

std::vector<std::string> KeyValue::texts() const {
  std::vector<std::string> result;
  if (json_.is_null()) return result;
  const auto add = [&](const Json& item) {
    if (!item.is_string()) expected("text, or a list of texts");
    if (!item.get_ref<const std::string&>().empty()) result.push_back(item.get<std::string>());
  };
  if (json_.is_array())
    for (const Json& item : json_) add(item);
  else
    add(json_);
  return result;
}

std::optional<int64> KeyValue::automatic_or_number() const {
  if (json_ == "auto") return std::nullopt;
  if (json_ == "all") return 0;
  if (!json_.is_number()) expected("auto, all or a whole number");
  return integer(1, int64{1} << 48);
}

std::string KeyValue::choice_word() const {
  if (json_ == false) return "no";
  if (!json_.is_string()) return "";
  return json_.get<std::string>();
}

}  // namespace megatoken
